"""What a figure says when a study has nothing for it."""

__all__ = ["NoData"]


class NoData(ValueError):
    """The study has no data for the figure; the message says what is missing and which runs have it."""
