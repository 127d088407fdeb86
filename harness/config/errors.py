"""Errors that a user can mend, and the end of a run that failed."""

__all__ = [
    "BusyError",
    "CompletedError",
    "CorruptRecordError",
    "LostLeaseError",
    "RunFailed",
    "StorageError",
    "UserError",
]


class UserError(ValueError):
    """Bad input: printed as one line, exit status 2. Says what was given, what was expected and how to fix it."""


class CorruptRecordError(UserError):
    """A file of a run that cannot be read as what it should be."""


class StorageError(UserError):
    """A place that cannot be written, a full disk for one; what was recorded before is whole."""


class BusyError(UserError):
    """A folder that a living process holds."""


class CompletedError(UserError):
    """The folder of a cell that is completed: there is nothing to write."""


class LostLeaseError(UserError):
    """A folder that another process has taken over, since this one was not heard of for too long."""


class RunFailed(Exception):  # noqa: N818 - the outcome of a run
    """A run that ended as a recorded failure; the message is its cause."""
