"""The operator's process: its arguments, log, health and shutdown."""
