"""The command line: one module per verb, each only parsing words and printing answers."""
