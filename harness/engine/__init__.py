"""The engine: policies, sampling, updates, ledger, and the training loop."""
