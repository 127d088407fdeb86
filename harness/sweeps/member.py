"""One of the processes that torchrun starts for a cell. No torch until the cell is run."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.schema import RunConfig
from harness.sweeps.engines import execute, load_engine
from harness.sweeps.processes import rank

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Be one of the processes of a cell; process 0 says on standard output how it goes, a JSON object a line.

    What anything else prints goes to standard error.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(arguments)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        if rank() == 0:
            answers.write(json.dumps(message) + "\n")
            answers.flush()

    try:
        config, engine = RunConfig.model_validate_json(options.config), load_engine(options.engine)
        execute(engine, config, options.folder, engine.identity(config), say)
    except UserError as error:
        say({"refusal": " ".join(str(error).split()), "kind": type(error).__name__})
        sys.exit(2)


if __name__ == "__main__":
    main()
