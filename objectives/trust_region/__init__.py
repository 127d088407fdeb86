"""Trust regions: what keeps a policy near another one. Any of them goes with any objective."""

from typing import Any

from objectives.registry import build, discover, lookup
from objectives.trust_region.base import TrustRegion, Verdict

__all__ = ["TrustRegion", "Verdict", "classes", "make", "names"]


def classes() -> dict[str, type[TrustRegion]]:
    """Return {name: class} of every trust region in this package."""
    return dict(discover("objectives.trust_region", TrustRegion))


def names() -> list[str]:
    """Return the names of all trust regions, sorted."""
    return sorted(classes())


def make(name: str, **settings: Any) -> TrustRegion:
    """Return the trust region ``name`` with ``settings`` over its defaults.

    Raises:
        ValueError: unknown name or setting (near matches are named), wrong type or range.

    Example:
        >>> make("dual", delta=0.1).delta
        0.1
    """
    return build("trust region", name, lookup("trust region", name, classes()), settings)
