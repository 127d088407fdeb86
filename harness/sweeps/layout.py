"""The layout of a sweep's folder and what its description says.

sweep.json          the sweep and its cells, in order
cells/<key>/        run folders
records/*.csv       compact records, see ``harness.sweeps.compact``
worker-<n>.log      what worker processes printed
lock                held by the process that runs the sweep
"""

from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.sweeps.records import read_json

__all__ = ["SWEEP", "cell_folder", "is_study", "read_sweep"]

SWEEP = "sweep.json"


def cell_folder(folder: Path, key: str) -> Path:
    """Return the run folder of a cell."""
    return folder / "cells" / key


def is_study(folder: Path) -> bool:
    """Whether a sweep was run into ``folder``."""
    return (folder / SWEEP).is_file()


def read_sweep(folder: Path) -> dict[str, Any]:
    """Return what sweep.json says: "name", "baseline" and "cells", each with key, labels, facts and config."""
    if not is_study(folder):
        raise UserError(f"{folder} holds no sweep ({SWEEP} is missing)")
    sweep = read_json(folder / SWEEP)
    if "cells" not in sweep or "name" not in sweep:
        raise UserError(f"{folder / SWEEP} does not describe a sweep; give another place with --out")
    return sweep
