"""The first ID that slurmctld may give to a new job, so that jobs that are to be put back find theirs free."""

from __future__ import annotations

import re

# Slurm's own, unless slurm.conf says otherwise.
_MAX_JOB_COUNT = 10_000
_MAX_JOB_ID = 0x03FF0000
_VALUE = rb"^[ \t]*%s[ \t]*=[ \t]*([^\s#]*)"


def line(wanted: int, conf: bytes) -> str:
    """FirstJobId, for the end of a slurm.conf; empty if there is none that is safe.

    Slurm lowers MaxJobCount to what fits between FirstJobId and MaxJobId, and then drops all saved jobs beyond that
    number; with a FirstJobId above MaxJobId it doesn't start. Rather than that an ID may be given out again: whose it
    was is kept and named then.
    """
    try:
        count = _value(conf, b"MaxJobCount", _MAX_JOB_COUNT)
        last = min(_value(conf, b"MaxJobId", _MAX_JOB_ID), _MAX_JOB_ID)
    except ValueError:
        return ""
    return f"FirstJobId={wanted}\n" if wanted > 0 and wanted + count <= last else ""


def _value(conf: bytes, key: bytes, default: int) -> int:
    """The last one counts. Raises ValueError for what isn't a number of Slurm's."""
    found = re.findall(_VALUE % key, conf, re.IGNORECASE | re.MULTILINE)
    return int(found[-1][:20].strip(b'"'), 0) if found else default
