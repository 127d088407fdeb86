"""What the parsers of all commands are made of. Imports nothing heavy."""

import argparse
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from harness.config.errors import UserError

__all__ = ["FAILED", "OK", "Parser", "add_command", "add_settings", "count", "counts", "names"]

OK, FAILED = 0, 1


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with the complaint."""
        raise UserError(f"{message} (see {self.prog} --help)")


if TYPE_CHECKING:
    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(commands: "Commands", name: str, text: str, example: str) -> Parser:
    """Return the parser of a new command, with ``text`` and an example in its help."""
    return commands.add_parser(name, help=text, description=text, epilog=f"example: {example}")


def add_settings(command: Parser) -> None:
    """Let a command take ``key=value`` words, before, between and behind its options."""
    command.add_argument("settings", nargs="*", metavar="key=value", help="settings over the file's, as TOML values")


def count(text: str) -> int:
    """Parse a whole number above 0; argparse turns the errors into its own."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def counts(text: str) -> list[int]:
    """Parse whole numbers above 0 with commas between them."""
    return [count(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Parse names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]
