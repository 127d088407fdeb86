"""What a figure says when a study has nothing for it."""

__all__ = ["NoData"]


class NoData(ValueError):  # noqa: N818 - reads as an answer
    """The study has no data for the figure; the message says what is missing and which runs have it."""
