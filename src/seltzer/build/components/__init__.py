"""The components of a cluster: one module each, and `table` with a row for each."""
