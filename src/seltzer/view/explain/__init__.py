"""Explains in a paragraph why a job is pending, or why a node accepts no jobs."""
