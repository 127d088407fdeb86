"""The tables that ``evengrad eval`` and ``evengrad verify`` print, of what ``harness.scoring.summarise`` says."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.terminal import VERDICT_STYLES, percent, shown, table, visible
from harness.verify import GOLD, Verified
from tasks.base import VERDICTS

__all__ = ["evaluation_parts", "verified_parts"]

Part = Table | Text | str
_SNIPPET = 100


def evaluation_parts(
    title: str, summary: Mapping[str, Any], ks: Sequence[int], samples: int, temperature: float
) -> Iterator[Part]:
    """Yield what to print of an evaluation.

    Args:
        title: what was evaluated on what.
        summary: of the evaluation.
        ks: k of pass@k and maj@k.
        samples: responses a prompt.
        temperature: of the sampling.
    """
    size = f"{summary['num_prompts']} prompts x {samples} response{'s' if samples > 1 else ''}"
    yield Text(f"{visible(title)}: {size} at temperature {temperature:g}", "bold")
    yield ""
    ks = sorted({1, *ks})
    rows = [_rate_row(f"pass@{k}", f"pass_at_{k}", summary, summary[f"pass_at_{k}_prompts"]) for k in ks]
    voted = [k for k in ks if summary.get(f"maj_at_{k}") is not None]
    rows += [_rate_row(f"maj@{k}", f"maj_at_{k}", summary, summary[f"pass_at_{k}_prompts"]) for k in voted]
    rows.append(("mean reward", shown(summary["score"]), "", str(summary["pass_at_1_prompts"])))
    rows.append(("response tokens", shown(summary["response_tokens_mean"], ".1f"), "", str(summary["num_prompts"])))
    yield table(("measure", "mean", "95% interval", "prompts"), rows)
    yield from _breakdown(summary)
    yield from _notes(summary, ks, voted)
    if temperature == 0 and samples > 1:
        yield "At temperature 0 all responses to a prompt are the same: further ones tell nothing."


def verified_parts(verified: Verified, show: int) -> Iterator[Part]:
    """Yield what to print of scored responses, with the first ``show`` reasons of each verdict but pass."""
    summary = verified.summary
    whose = "gold responses" if verified.source == GOLD else "responses"
    size = f"{len(verified.rows)} {whose} to {summary['num_prompts']} of {verified.num_examples} examples"
    yield Text(f"{visible(verified.name)}, {verified.split}: {size}", "bold")
    yield from _breakdown(summary)
    low_high = _interval(summary, "pass_at_1")
    rows = [
        ("pass@1", shown(summary["pass_at_1"]), f"95% interval {low_high}" if low_high else "no interval"),
        ("mean reward", shown(summary["score"]), "over prompts, responses of one prompt averaged first"),
        ("infra rate", percent(summary["infra"], summary["num_responses"]), "not scored, in neither mean"),
    ]
    yield ""
    yield from (f"{name:<12} {value:>6}  {remark}" for name, value, remark in rows)
    yield from _notes(summary, (1,), ())
    yield from _reasons(verified.rows, show)


def _breakdown(summary: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the verdicts, and pass@1 by difficulty where there is more than one label."""
    counts: Mapping[str, int] = summary["verdicts"]
    total = summary["num_responses"]
    rows = [
        (Text(word, VERDICT_STYLES[word] if counts.get(word) else "dim"), str(counts.get(word, 0)), percent(n, total))
        for word, n in ((word, counts.get(word, 0)) for word in VERDICTS)
    ]
    yield ""
    yield table(("verdict", "count", "share"), rows)
    labels: Mapping[str, Mapping[str, Any]] = summary["pass_by_difficulty"]
    if any(labels):
        yield ""
        lines = [
            _rate_row(visible(name) or "(none)", "pass_at_1", row, f"{row['num_scored_prompts']}/{row['num_prompts']}")
            for name, row in labels.items()
        ]
        yield table(("difficulty", "pass@1", "95% interval", "scored prompts"), lines)


def _rate_row(name: str, key: str, summary: Mapping[str, Any], prompts: object) -> tuple[str, str, str, str]:
    return name, shown(summary[key]), _interval(summary, key), str(prompts)


def _interval(summary: Mapping[str, Any], key: str) -> str:
    low, high = summary[f"{key}_low"], summary[f"{key}_high"]
    return "" if low is None else f"[{low:.3f}, {high:.3f}]"


def _notes(summary: Mapping[str, Any], ks: Sequence[int], voted: Sequence[int]) -> Iterator[str]:
    notes: list[str] = []
    if infra := summary["infra"]:
        total = summary["num_responses"]
        notes.append(
            f"{infra} of {total} responses ({percent(infra, total)}) could not be scored (infra) and are left out; "
            f"counted as wrong, pass@1 would be {shown(summary['pass_at_1_floor'])}."
        )
    for k in ks:
        left_out = summary["num_prompts"] - summary[f"pass_at_{k}_prompts"]
        if left_out:
            few = "no scored response" if k == 1 else f"fewer than {k} scored responses"
            notes.append(f"pass@{k} leaves out {left_out} prompt{'s' if left_out > 1 else ''} with {few}.")
    if not voted and any(k > 1 and summary[f"pass_at_{k}_prompts"] for k in ks):
        notes.append("There is no maj@k: answers of this task cannot be voted on.")
    if notes:
        yield ""
        yield from notes


def _reasons(rows: Sequence[Mapping[str, Any]], show: int) -> Iterator[Part]:
    for word in VERDICTS:
        found = [row for row in rows if row["verdict"] == word]
        if not found or not show or word == "pass":
            continue
        yield ""
        head = f"{word}: {len(found)}" + (f", the first {show}" if len(found) > show else "")
        yield Text(head, VERDICT_STYLES[word])
        for row in found[:show]:
            yield f"  {visible(row['id'])}  {visible(row['reason'])}"
            yield Text(f"    {_snippet(row['response'])}", "dim")


def _snippet(response: str) -> str:
    """Return a response on one line, its end if it is long: that is where answers stand."""
    if len(response) > _SNIPPET:
        response = "..." + response[3 - _SNIPPET :]
    return visible(response) or "(empty)"
