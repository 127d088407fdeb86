"""Side-by-side measurements: this engine, what else does the same work, and what the machine could do at best."""
