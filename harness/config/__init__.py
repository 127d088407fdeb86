"""Configuration: schemas, loading and errors. No torch."""
