"""Why a directory wasn't read: four kinds of errors that callers handle differently. None of them is an answer."""

from __future__ import annotations

from seltzer.errors import SeltzerError


class DirectoryError(SeltzerError):
    """The directory was not read, or not completely: what was known before stays."""


class Unreachable(DirectoryError):
    """This server gave no answer that can be trusted. Another one may."""


class Refused(DirectoryError):
    """The directory doesn't accept our account. Retrying often may lock it."""


class Misconfigured(DirectoryError):
    """The settings don't fit the directory: an administrator has to change one of the two."""


class Incomplete(DirectoryError):
    """The directory has more than it returned, or returned nothing at all."""
