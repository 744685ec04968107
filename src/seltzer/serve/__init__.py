"""The operator's process: its arguments, its log, its health, its end."""
