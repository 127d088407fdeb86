"""What a sweep needs of the engine. No torch and no transformers before a cell is run: plans are made without them."""

from harness.config.errors import RunFailed
from harness.config.schema import RunConfig
from harness.engine.estimate import estimate_cell
from harness.engine.identity import identity
from harness.sweeps.engines import Notify
from harness.sweeps.run_folder import RunFolder

__all__ = ["RunFailed", "estimate_cell", "identity", "run_cell"]


def run_cell(config: RunConfig, folder: RunFolder, notify: Notify) -> None:
    """Run one cell to its end, from its last checkpoint if there is one, and record it in ``folder``.

    Args:
        config: the run.
        folder: open folder of the cell.
        notify: told {"fraction", "score", "iteration"} as it goes; the score is the last one known.

    Raises:
        RunFailed: a loss or gradient was not finite, too many responses could not be scored, or the budget allowed
            no update; recorded with its cause.
        UserError: the configuration cannot be run.
        CorruptRecordError: the checkpoint or a record stream cannot be trusted.
    """
    from harness.engine.train import train_cell

    train_cell(config, folder, notify)
