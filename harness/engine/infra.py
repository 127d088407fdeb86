"""Count what a task says of responses, and stop where too many of them could not be scored. No torch.

A response that could not be scored (verdict "infra") is masked, never wrong, so a broken verifier does not show in the
rewards: it takes responses away, and not at random. At the default limit of a tenth, more than half of all groups of 8
lack a member (1 - 0.9^8 = 0.57); a working verifier stays far below it. A single failure is never a rate.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tasks.base import Score

__all__ = ["Tally", "TooManyUnscored", "check_scored", "explain", "tally", "verdicts"]

Tally = Counter[tuple[str, str]]
"""(verdict, reason) -> responses."""

_REASON_CHARACTERS = 120


class TooManyUnscored(Exception):  # noqa: N818 - the outcome of a run
    """Too large a share of the responses could not be scored; the message says how many and why."""


def tally(scores: Iterable[Score]) -> Tally:
    """Return how often each verdict came with each reason."""
    return Counter((score.verdict, score.reason) for score in scores)


def verdicts(counts: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Return the responses by verdict."""
    found: Counter[str] = Counter()
    for (verdict, _), count in counts.items():
        found[verdict] += count
    return found


def check_scored(counts: Mapping[tuple[str, str], int], limit: float, of: str, setting: str) -> None:
    """Raise if more than a share ``limit`` of the responses could not be scored.

    One failure alone passes, unless ``limit`` is 0; so does a count of nothing.

    Args:
        counts: of ``tally``, of all responses that were judged, once each.
        limit: share in [0, 1].
        of: what was judged, such as "the rollout".
        setting: name of the limit's setting, for the message.

    Raises:
        TooManyUnscored: with the verdicts and the most common reason of each.
    """
    by_verdict = verdicts(counts)
    total, failed = by_verdict.total(), by_verdict["infra"]
    if failed > limit * total and (failed > 1 or limit == 0):
        raise TooManyUnscored(
            f"{failed} of {total} responses of {of} could not be scored, more than {setting} = {limit:g} allows; "
            f"verdicts: {explain(counts)}; mend what scores them, or raise {setting}, and run again: it goes on from "
            "the last checkpoint"
        )


def explain(counts: Mapping[tuple[str, str], int]) -> str:
    """Return verdicts with their counts, "infra" first, and the most common reason of each."""
    parts: list[str] = []
    for verdict, count in sorted(verdicts(counts).items(), key=lambda item: (item[0] != "infra", -item[1], item[0])):
        reasons = {reason: n for (name, reason), n in counts.items() if name == verdict and reason}
        if not reasons:
            parts.append(f"{verdict} {count}")
            continue
        reason = max(sorted(reasons), key=lambda name: reasons[name])
        shown = " ".join(reason.split())
        if len(shown) > _REASON_CHARACTERS:
            shown = shown[: _REASON_CHARACTERS - 3] + "..."
        parts.append(f"{verdict} {count} ({reasons[reason]} times {shown!r})")
    return ", ".join(parts)
