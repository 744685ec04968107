"""Decisions about users: which accounts exist, with which IDs, and what is refused."""
