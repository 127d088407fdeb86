"""The harness: one engine for every objective, sweeps at matched compute, and reports."""
