"""Why a directory wasn't read, in four kinds that callers handle differently. After each of them nothing is known."""

from __future__ import annotations

from seltzer.errors import SeltzerError


class DirectoryError(SeltzerError):
    """The directory was not read, or not completely: what was known before stays."""


class Unreachable(DirectoryError):
    """This server gave no answer that can be trusted. Another one may."""


class Refused(DirectoryError):
    """The directory doesn't accept who we are. Asking often may lock the account."""


class Misconfigured(DirectoryError):
    """The settings don't fit the directory: a person has to change one of the two."""


class Incomplete(DirectoryError):
    """The directory has more than it returned, or returned nothing at all."""
