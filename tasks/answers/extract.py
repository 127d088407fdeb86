"""Where the final answer of a response stands: the last box, or what follows a data set's own marker."""

import re

__all__ = ["after_marker", "last_boxed"]

# An escaped character is one token, so `\{` opens nothing and `\\boxed` is a line break and a word.
_PIECE = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_BOXES = ("\\boxed", "\\fbox")
_BLANK = re.compile(r"[ \t\r\n]*")
_EMPHASIS = ("*", "_", "`")
_BARE_END = re.compile(r"[$\r\n]|\\boxed|\\fbox")


def _spans(text: str) -> list[tuple[int, int, int | None]]:
    """Return (start of the command, start of the content, end of the content or None) of every braced or bare box."""
    spans: list[tuple[int, int, int | None]] = []
    open_braces: list[int | None] = []  # the box that a brace opens, by its place in spans
    waiting: dict[int, int] = {}  # where a box's own brace stands -> the box
    for match in _PIECE.finditer(text):
        piece, place = match.group(), match.start()
        if piece in _BOXES:
            blank = _BLANK.match(text, match.end())
            content = blank.end() if blank else match.end()
            if text.startswith("{", content):
                waiting[content] = len(spans)
                spans.append((place, content + 1, None))
            else:
                found = _BARE_END.search(text, content)
                end = found.start() if found else len(text)
                spans.append((place, content, end if end > content else None))
        elif piece == "{":
            open_braces.append(waiting.pop(place, None))
        elif piece == "}" and open_braces:
            box = open_braces.pop()
            if box is not None:
                spans[box] = (*spans[box][:2], place)
    return spans


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last box.

    Boxes are ``\boxed{...}`` and ``\fbox{...}``; a bare ``\boxed 5`` ends at the next ``$`` or box or with its line.
    Of a box inside a closed box the outer one counts, so that ``\boxed{5 \text{ or } \boxed{7}}`` is no 7. The time is
    linear in the length.

    Returns:
        The content without the white space around it, "" for an empty one; None where there is no box or the last one
        is not closed.
    """
    spans = [] if "box" not in text else _spans(text)
    if not spans or spans[-1][2] is None:
        return None
    outer = last = spans[-1]
    for span in spans:
        if span[2] is not None and span[2] >= (last[2] or 0) and span[0] <= last[0]:
            outer = span
            break
    return text[outer[1] : outer[2]].strip()


def after_marker(text: str, marker: str) -> str | None:
    """Return what follows the last ``marker`` up to the end of its line, without the white space around it.

    The marker's line must be the last one that is not blank, as in the data set itself: with further text behind it
    the line is not the final answer, and None is returned. An empty line after the marker gives "". Markdown emphasis
    round the whole line is taken off.

    Raises:
        ValueError: ``marker`` is empty.
    """
    if not marker:
        raise ValueError("marker is '', expected the text before an answer, e.g. '####'")
    place = text.rfind(marker)
    if place < 0:
        return None
    answer, _, rest = text[place + len(marker) :].strip(" \t").replace("\r", "\n").partition("\n")
    answer = answer.strip()
    if answer.endswith(_EMPHASIS):
        answer = _without_emphasis(text[:place].replace("\r", "\n").rpartition("\n")[2].strip(), answer)
    return None if rest.strip() else answer


def _without_emphasis(before: str, answer: str) -> str:
    """Return an answer without the signs at its end that only close those at the beginning of its line."""
    return answer.removesuffix(before) if before and not before.strip("*_`") else answer
