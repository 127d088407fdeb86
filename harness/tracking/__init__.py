"""A mirror of local records for W&B and TensorBoard: a process of its own that reads them; no run waits for it."""
