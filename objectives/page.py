"""The page of all objectives and trust regions, made from their docstrings: ``python -m objectives.page``.

It writes PAGE.md beside this file; a test says when that is out of date. The docstring of an objective's module holds,
in this order: a title with its source, an indented block of formulas with ``loss`` and ``c_t``, then paragraphs, among
them "Weights: ..." and "Defaults: ...".
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path

import objectives
from objectives import trust_region
from objectives.base import Objective

__all__ = ["FILE", "render"]

FILE = Path(__file__).parent / "PAGE.md"
_HEAD = """# Objectives and trust regions

Made by `python -m objectives.page` from the docstrings. A advantage, r token ratio pi_theta / pi_old, sg stop-gradient;
c_t = -d loss / d log pi_theta(t) divided by the token's weight: what a token is pushed by. A clip is one-sided by the
sign of A where nothing else is said. Losses are minimised.
"""


def render() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, "## Objectives\n", _overview()]
    parts += [_entry(name, cls) for name, cls in sorted(objectives.classes().items())]
    parts += ["## Trust regions\n", *(_entry(name, cls) for name, cls in sorted(trust_region.classes().items()))]
    return "\n".join(parts)


def _text(cls: type) -> str:
    return sys.modules[cls.__module__].__doc__ or ""


def _overview() -> str:
    lines = ["| name | what | weights | reads | updates a rollout |", "| --- | --- | --- | --- | --- |"]
    for name, cls in sorted(objectives.classes().items()):
        text = _text(cls)
        weights = re.search(r"^Weights: (.*?)(?:[:.;](?: |\n|$)|\Z)", text, re.MULTILINE | re.DOTALL)
        cells = [
            f"[`{name}`](#{name})",
            _title(text).split(": ", 1)[-1].split(" (")[0],
            " ".join(weights[1].split()) if weights else "",
            ", ".join(sorted(_requires(cls))),
            cls.updates_per_rollout,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _requires(cls: type[Objective]) -> frozenset[str]:
    return frozenset() if isinstance(cls.requires, property) else cls.requires


def _title(text: str) -> str:
    return text.split("\n\n", 1)[0].replace("\n", " ")


def _entry(name: str, cls: type) -> str:
    """Return the section of one class: its title, formulas, paragraphs and settings."""
    text = _text(cls)
    _, _, body = text.partition("\n\n")
    blocks = [block for block in body.strip("\n").split("\n\n") if block]
    shown = [f"```text\n{_dedent(block)}\n```" if block.startswith("    ") else _paragraphs(block) for block in blocks]
    return "\n\n".join([f"### {name}", _title(text), *shown, _settings(cls)]) + "\n"


def _dedent(block: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in block.splitlines())


def _paragraphs(block: str) -> str:
    """Break a block before each line that opens with a capital after a full stop or colon; bold the known openings."""
    text = re.sub(r"(?<=[.:])\n(?=[A-Z\"])", "\n\n", block)
    text = re.sub(r"``", "`", text)
    return re.sub(r"^(Weights|Defaults|Differs from|Reduces to)\b", r"**\1**", text, flags=re.MULTILINE)


def _settings(cls: type) -> str:
    rows = [
        f"`{item.name}` = {'required' if item.default is MISSING else repr(item.default)}"
        for item in fields(cls)  # pyright: ignore[reportArgumentType]
    ]
    presets: Mapping[str, object] = getattr(cls, "presets", {})
    named = [f"Presets: {', '.join(f'`{preset}`' for preset in presets)}."] if presets else []
    return " ".join([f"Settings: {', '.join(rows) if rows else 'none'}.", *named])


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
