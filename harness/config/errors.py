"""Errors that a user can mend."""

__all__ = ["CorruptRecordError", "UserError"]


class UserError(ValueError):
    """Bad input: printed as one line, exit status 2. Says what was given, what was expected and how to fix it."""


class CorruptRecordError(UserError):
    """A file of a run that cannot be read as what it should be."""
