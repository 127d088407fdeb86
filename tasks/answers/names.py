"""Names in expressions: functions, symbols, and how a run of letters is read."""

import re
from collections.abc import Sequence

from tasks.answers.latex import UnreadableError
from tasks.answers.tokens import is_text

__all__ = ["APPLIED", "FUNCTIONS", "SYMBOLS", "is_function", "letter_of", "letters"]

_COMMAND = re.compile(r"\\[A-Za-z]+")
FUNCTIONS = frozenset(
    _COMMAND.findall(r"\sin\cos\tan\cot\sec\csc\arcsin\arccos\arctan\sinh\cosh\tanh\log\ln\lg\exp\gcd\lcm\min\max\arg")
)
SYMBOLS = frozenset(
    _COMMAND.findall(
        r"\pi\infty\alpha\beta\gamma\delta\epsilon\varepsilon\zeta\eta\theta\vartheta\iota\kappa\lambda\mu\nu\xi\rho"
        r"\sigma\tau\phi\varphi\chi\psi\omega\Gamma\Delta\Theta\Lambda\Xi\Pi\Sigma\Phi\Psi\Omega\R\N\Z\Q\C\emptyset"
        r"\varnothing\ell\degree"
    )
)
APPLIED = frozenset({"f", "g"})  # f(x) is a value of f, never f times x
_PLAIN = {"sqrt": r"\sqrt", "pi": r"\pi", "infinity": r"\infty", "inf": r"\infty"}


def is_function(token: str) -> bool:
    r"""Return whether a token names a function: ``\sin`` or ``sin``."""
    return token in FUNCTIONS or rf"\{token}" in FUNCTIONS


def letter_of(token: str) -> str:
    r"""Return the letter of ``x`` or ``\text{C}``, "" for any other token."""
    inside = token[6:-1].strip() if is_text(token) else token
    return inside if len(inside) == 1 and inside.isalpha() else ""


def letters(tokens: Sequence[str]) -> list[str]:
    """Split runs of letters, but for names of functions, and read one letter of text as that letter.

    Raises:
        UnreadableError: a letter that is not ASCII.
    """
    out: list[str] = []
    for token in tokens:
        name = letter_of(token) or token
        if not name[0].isalpha():
            out.append(name)
        elif not name.isascii():
            raise UnreadableError(f"no expression holds {name[:20]!a}")
        elif rf"\{name}" in FUNCTIONS:
            out.append(rf"\{name}")
        else:
            out.extend([_PLAIN[name]] if name in _PLAIN else name)
    return out
