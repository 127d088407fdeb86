"""What tasks over published text share: the lines of a worked solution."""

__all__ = ["line_starts"]


def line_starts(text: str) -> list[int]:
    """Return where the lines of ``text`` begin, blank ones left out; the first entry is 0 whatever the text."""
    starts = [0]
    offset = 0
    for line in text.split("\n"):
        if offset and line.strip():
            starts.append(offset)
        offset += len(line) + 1
    return starts
