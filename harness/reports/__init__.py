"""From a study's records to statistics, tables and figures; never imports torch."""
