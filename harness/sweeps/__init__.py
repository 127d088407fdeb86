"""Sweeps: grids of cells, their records, and the executors that run them. No torch."""
