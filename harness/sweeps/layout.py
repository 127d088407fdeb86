"""The layout of a sweep's folder and what its description says.

sweep.json          the sweep and its cells, in order
cells/<key>/        run folders
records/*.csv       compact records, see ``harness.sweeps.compact``
worker-<n>.log      what worker processes of this machine printed; slurm/ the same of jobs
lease/              says which process runs the sweep, see ``harness.sweeps.lease``
"""

from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.sweeps.records import read_json

__all__ = ["FORMAT", "SWEEP", "cell_folder", "is_study", "read_sweep"]

SWEEP = "sweep.json"
FORMAT = 1
"""Of sweep.json and of what lies below it; a folder without a number is of this format too."""
_CELL_FIELDS = ("key", "arm", "task", "policy", "seed", "facts", "config")


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
    written = sweep.get("format", FORMAT)
    if written != FORMAT:
        raise UserError(
            f"{folder} was written by a version of evengrad with records of format {written}, this one reads and "
            f"writes format {FORMAT}: report it with that version, or give another place with --out"
        )
    if "cells" not in sweep or "name" not in sweep:
        raise UserError(f"{folder / SWEEP} does not describe a sweep; give another place with --out")
    missing = sorted({name for cell in sweep["cells"] for name in _CELL_FIELDS if name not in cell})
    if missing:
        raise UserError(
            f"{folder / SWEEP} was written by an older version of evengrad (its cells lack {', '.join(missing)}): "
            "report it with that version, or give another place with --out"
        )
    return sweep
