"""What the operator counts, beside what the runtime does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge, Histogram

_calls = Histogram("seltzer_slurm_call_seconds", "How long calls to Slurm take", ["call"])
_failed = Counter("seltzer_slurm_call_failures", "Calls to Slurm that failed", ["call"])
_actions = Counter("seltzer_actions", "Actions of plans, by kind and outcome", ["action", "outcome"])
draining = Gauge("seltzer_draining_nodes", "Nodes whose jobs are waited for before their pods go", ["nodeset"])
stale = Gauge("seltzer_cache_stale_seconds", "Seconds since the API server last said anything", ["kind"])
leading = Gauge("seltzer_leading", "1 if this replica leads")


@contextmanager
def slurm_call(what: str) -> Iterator[None]:
    """Measure one call."""
    started = time.monotonic()
    try:
        yield
    except Exception:
        _failed.labels(what).inc()
        raise
    finally:
        _calls.labels(what).observe(time.monotonic() - started)


def acted(action: str, outcome: str) -> None:
    """Count one action."""
    _actions.labels(action, outcome).inc()
