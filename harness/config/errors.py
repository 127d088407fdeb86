"""Errors that a user can mend, and the end of a run that failed."""

__all__ = ["CorruptRecordError", "RunFailed", "UserError"]


class UserError(ValueError):
    """Bad input: printed as one line, exit status 2. Says what was given, what was expected and how to fix it."""


class CorruptRecordError(UserError):
    """A file of a run that cannot be read as what it should be."""


class RunFailed(Exception):  # noqa: N818 - the outcome of a run
    """A run that ended as a recorded failure; the message is its cause."""
