r"""Reading LaTeX into tokens: what is only for the eye goes, what has two spellings gets one.

A token is a number (``1234.5``), a run of letters, a command (``\frac``), ``\text{...}`` with its content, a bracket,
an operator, or a space between two numbers (``5 7`` is never 57).
"""

import re

from tasks.answers.latex import UnreadableError

__all__ = ["CLOSE", "MAX_DEPTH", "OPEN", "is_number", "is_text", "tokenise"]

MAX_DEPTH = 30  # brackets inside each other

OPEN = frozenset({"(", "[", "{", r"\{", r"\begin{matrix}"})
CLOSE = frozenset({")", "]", "}", r"\}", r"\end{matrix}"})

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[^\W\d_]+|[ \t\r\n]+|\*\*|<=|>=|!=|.", re.DOTALL)
_GROUP = re.compile(r"[0-9]{3}(\.[0-9]+)?")

_SPACES = frozenset({r"\,", r"\;", r"\:", r"\!", r"\ ", "~", r"\quad", r"\qquad", r"\thinspace"})
_SIZES = frozenset(
    [r"\left", r"\right", r"\displaystyle", r"\textstyle", r"\limits", r"\hline", r"\middle"]
    + [rf"\{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r", "m")]
)
_TEXTS = frozenset(
    re.findall(
        r"\\[a-z]+",
        r"\text\textbf\textit\textrm\textsf\texttt\textnormal\mbox\hbox\mathrm\mathbf\mathsf\mathit\operatorname"
        r"\boldsymbol",
    )
)
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "smallmatrix", "array"})
_SAME = {
    **dict.fromkeys((r"\dfrac", r"\tfrac", r"\cfrac"), r"\frac"),
    **dict.fromkeys((r"\cdot", r"\times", r"\ast"), "*"),
    **dict.fromkeys((r"\le", r"\leq", r"\leqslant"), "<="),
    **dict.fromkeys((r"\ge", r"\geq", r"\geqslant"), ">="),
    **dict.fromkeys((r"\ne", r"\neq"), "!="),
    **dict.fromkeys((r"\langle", r"\lparen"), "("),
    **dict.fromkeys((r"\rangle", r"\rparen"), ")"),
    **dict.fromkeys((r"\lvert", r"\rvert", r"\vert"), "|"),
    **dict.fromkeys((r"\lor", r"\vee"), "or"),
    **{r"\div": "/", "**": "^", r"\lt": "<", r"\gt": ">", r"\lbrace": r"\{", r"\rbrace": r"\}"},
    **{r"\lbrack": "[", r"\rbrack": "]", r"\%": "%", r"\$": "$", r"\dbinom": r"\binom", r"\tbinom": r"\binom"},
}


def is_number(token: str) -> bool:
    """Return whether a token is a number: ASCII digits, maybe a point."""
    return token[0] in "0123456789" or (token[0] == "." and len(token) > 1)


def is_text(token: str) -> bool:
    r"""Return whether a token is ``\text{...}``."""
    return token.startswith(r"\text{")


def tokenise(text: str, thousands: bool = True) -> tuple[str, ...]:
    r"""Return the tokens of a cleaned text.

    Args:
        text: what ``clean`` returned.
        thousands: whether ``1,000`` is one number; ``1{,}000``, ``1,\!000`` and ``1\,000`` always are. Inside round,
            square and set brackets a plain comma separates.

    Raises:
        UnreadableError: brackets that do not close, or more than ``MAX_DEPTH`` inside each other.
    """
    tokens = tuple(_Tokeniser(text, thousands).run())
    depth, braces = 0, 0
    for token in tokens:
        depth += (token in OPEN) - (token in CLOSE)
        braces += (token == "{") - (token == "}")
        if depth < 0 or braces < 0:
            raise UnreadableError("a bracket closes that was not opened")
        if depth > MAX_DEPTH:
            raise UnreadableError(f"brackets are nested deeper than {MAX_DEPTH}")
    if depth or braces:
        raise UnreadableError("a bracket is not closed")
    if not tokens:
        raise UnreadableError("the answer is empty")
    return tokens


class _Tokeniser:
    """One pass over the raw tokens of a text."""

    def __init__(self, text: str, thousands: bool) -> None:
        self.raw = _TOKEN.findall(text)
        self.thousands = thousands
        self.place = 0
        self.brackets = 0  # round, square and set brackets that are open

    def run(self) -> list[str]:
        out: list[str] = []
        spaced = False
        while self.place < len(self.raw):
            token = self._next()
            if not token:
                spaced = True
                continue
            if spaced and out and is_number(token) and is_number(out[-1]):
                out.append(" ")
            self.brackets += (token in ("(", "[", r"\{")) - (token in (")", "]", r"\}"))
            out.append(token)
            spaced = False
        return out

    def _next(self) -> str:
        """Return the token here and move behind it; "" where there is only space."""
        token = self.raw[self.place]
        self.place += 1
        if token.isspace() or token in _SPACES:
            return ""
        if token in _SIZES:
            if token in (r"\left", r"\right") and self._peek() == ".":
                self.place += 1
            return ""
        if token in _TEXTS or token == r"\mathbb":
            return self._text(token)
        if token in (r"\begin", r"\end"):
            return self._environment(token)
        if token == r"\\" and self.raw[self.place : self.place + 1] == ["["]:
            return self._row()
        if token == r"\degree" or (token == "^" and self._skip(("{", r"\circ", "}"), (r"\circ",))):
            return r"\degree"
        return self._number(token) if is_number(token) else _SAME.get(token, token)

    def _peek(self) -> str:
        return self.raw[self.place] if self.place < len(self.raw) else ""

    def _skip(self, *patterns: tuple[str, ...]) -> bool:
        """Move behind the first pattern that stands here, spaces apart."""
        place = self.place + (self._peek().isspace())
        for pattern in patterns:
            if tuple(self.raw[place : place + len(pattern)]) == pattern:
                self.place = place + len(pattern)
                return True
        return False

    def _braced(self) -> str | None:
        """Return the raw content of the braces here and move behind them; None where there are none."""
        start = self.place + self._peek().isspace()
        if self.raw[start : start + 1] != ["{"]:
            return None
        depth = 0
        for place in range(start, len(self.raw)):
            depth += (self.raw[place] == "{") - (self.raw[place] == "}")
            if depth == 0:
                self.place = place + 1
                return "".join(self.raw[start + 1 : place])
        raise UnreadableError("a bracket is not closed")

    def _text(self, command: str) -> str:
        content = self._braced()
        if content is None:
            return command
        content = content.replace("~", " ")
        if content.strip() in ("%", r"\%"):
            return "%"
        return rf"\{content.strip()}" if command == r"\mathbb" else rf"\text{{{content}}}"

    def _environment(self, command: str) -> str:
        name = (self._braced() or "").strip()
        if name == "array" and command == r"\begin":
            self._braced()
        return rf"{command}{{matrix}}" if name in _MATRICES else rf"{command}{{{name}}}"

    def _row(self) -> str:
        r"""Drop the space that ``\\[4pt]`` asks for."""
        if tuple(self.raw[self.place + 2 : self.place + 4]) in {("pt", "]"), ("em", "]"), ("ex", "]")}:
            self.place += 4
        return r"\\"

    def _number(self, token: str) -> str:
        """Return the number that begins here, its thousands joined."""
        most_digits = 3
        if "." in token or token[0] == "0" or len(token) > most_digits:
            return token
        while group := self._group():
            token += group
            if "." in group:
                break
        return token

    def _group(self) -> str:
        """Return three digits behind a separator, maybe with decimals, and move behind them; else ""."""
        place, raw = self.place, self.raw
        if tuple(raw[place : place + 3]) == ("{", ",", "}"):
            place += 3
        elif raw[place : place + 1] == [r"\,"]:
            place += 1
        elif raw[place : place + 1] == [","]:
            place += 1
            if raw[place : place + 1] == [r"\!"]:
                place += 1 + raw[place + 1 : place + 2].count(" ")
            elif not self.thousands or self.brackets:
                return ""
        else:
            return ""
        if place >= len(raw) or not _GROUP.fullmatch(raw[place]):
            return ""
        self.place = place + 1
        return raw[place]
