"""What statistics are made of: arrays of known values, levels and ties. Nothing heavy: the engine has them too."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LEVEL", "TIE", "Floats", "finite"]

LEVEL = 0.95
"""Of every interval."""
TIE = 1e-12
"""Two sums within this relative distance are equal."""

Floats = NDArray[np.float64]


def finite(values: ArrayLike) -> Floats:
    """Return a 1-d float64 array; raise ValueError if an entry is NaN or infinite."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise ValueError(f"expected a 1-d array of finite numbers, got {array.tolist()}")
    return array
