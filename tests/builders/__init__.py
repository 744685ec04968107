"""The builders of test objects: one family, with defaults for everything that a test doesn't care about."""
