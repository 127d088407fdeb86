"""What the cells of a study were made of: settings, hashes of sources, versions, hardware class.

Compact records keep it in ``provenance.json``: {"shared": what all begun cells have in common, "cells": {key: the
rest}}, dotted keys. No torch.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.sweeps.files import write_atomic
from harness.sweeps.flat import flat
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.records import read_json

__all__ = ["FILE", "identities", "shared", "write_provenance"]

FILE = "provenance.json"
Identities = dict[str, dict[str, Any]]


def identities(folder: Path) -> Identities:
    """Return {cell: {dotted key: value}} of every cell that was begun.

    Args:
        folder: of a sweep, or of compact records (the CSV files or records/ with them); {} if these do not know.

    Raises:
        CorruptRecordError: a file is not what it should be.
    """
    if is_study(folder):
        files = {cell["key"]: cell_folder(folder, cell["key"]) / "config.json" for cell in read_sweep(folder)["cells"]}
        return {key: dict(flat(read_json(file))) for key, file in files.items() if file.is_file()}
    file = next((place / FILE for place in (folder, folder / "records") if (place / FILE).is_file()), None)
    if file is None:
        return {}
    known = read_json(file)
    return {key: {**known.get("shared", {}), **own} for key, own in known.get("cells", {}).items()}


def shared(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all cells have in common."""
    first, *others = found.values() or [{}]
    return {key: value for key, value in first.items() if all(key in one and one[key] == value for one in others)}


def write_provenance(folder: Path, records: Path) -> None:
    """Write ``records``/provenance.json of the sweep in ``folder``; the same bytes for the same cells."""
    found = identities(folder)
    common = shared(found)
    own = {key: {name: value for name, value in one.items() if name not in common} for key, one in found.items()}
    text = json.dumps({"shared": common, "cells": own}, sort_keys=True, indent=1, allow_nan=False)
    write_atomic(records / FILE, f"{text}\n".encode())
