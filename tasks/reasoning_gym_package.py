"""The package reasoning-gym, imported when the first item is drawn: the tasks are listed without it."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any

__all__ = ["item", "version"]

_INSTALL = "pip install 'evengrad[reasoning-gym]'"


@lru_cache(maxsize=64)
def _dataset(name: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise ValueError(f"the rg_ tasks need the package reasoning-gym ({error}): {_INSTALL}") from error
    return reasoning_gym.create_dataset(name, seed=0, size=1, **dict(settings))


def item(name: str, settings: tuple[tuple[str, Any], ...], seed: int) -> Mapping[str, Any]:
    """Return one item of a generator: question, answer and metadata.

    Args:
        name: of the generator in the package.
        settings: (name, value) of its configuration.
        seed: of the item alone. The package adds a data set's seed and an item's index; the former is 0 here, so that
            the index is a seed, to be drawn from a hash.

    Returns:
        The item, the same in every process.

    Raises:
        ValueError: the package is missing.
    """
    return _dataset(name, settings)[seed]


def version() -> str:
    """Return the version that is installed, from its distribution (``reasoning_gym.__version__`` lags behind).

    Raises:
        ValueError: the package is missing.
    """
    try:
        return metadata.version("reasoning-gym")
    except metadata.PackageNotFoundError as error:
        raise ValueError(f"the rg_ tasks need the package reasoning-gym: {_INSTALL}") from error
