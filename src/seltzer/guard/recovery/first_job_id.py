"""The first ID that slurmctld may give to a new job, so that the IDs of jobs to be put back stay free."""

from __future__ import annotations

import re

# Slurm's defaults, unless slurm.conf sets them.
_MAX_JOB_COUNT = 10_000
_MAX_JOB_ID = 0x03FF0000
_VALUE = rb"^[ \t]*%s[ \t]*=[ \t]*([^\s#]*)"


def line(wanted: int, conf: bytes) -> str:
    """FirstJobId, for the end of a slurm.conf; empty if no value is safe.

    Slurm lowers MaxJobCount to what fits between FirstJobId and MaxJobId, and drops all saved jobs beyond that number.
    With a FirstJobId above MaxJobId it doesn't start. An ID that may be given out again is less harmful than either:
    the job that had it is then kept and reported.
    """
    try:
        count = _value(conf, b"MaxJobCount", _MAX_JOB_COUNT)
        last = min(_value(conf, b"MaxJobId", _MAX_JOB_ID), _MAX_JOB_ID)
    except ValueError:
        return ""
    return f"FirstJobId={wanted}\n" if wanted > 0 and wanted + count <= last else ""


def _value(conf: bytes, key: bytes, default: int) -> int:
    """The last value counts. Raises ValueError if it isn't a number in Slurm's syntax."""
    found = re.findall(_VALUE % key, conf, re.IGNORECASE | re.MULTILINE)
    return int(found[-1][:20].strip(b'"'), 0) if found else default
