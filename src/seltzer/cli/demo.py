"""`seltzer demo`: from nothing to a job."""

from __future__ import annotations


def demo() -> None:
    """Bring up a sandbox with a Slurm cluster in it, run a job, and say what to try next."""
    raise NotImplementedError
