"""The operator's metrics, beside those of the runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prometheus_client import Counter, Gauge, Histogram

from seltzer.api.status import SlurmClusterStatus

_calls = Histogram("seltzer_slurm_call_seconds", "How long calls to Slurm take", ["call"])
_failed = Counter("seltzer_slurm_call_failures", "Calls to Slurm that failed", ["call"])
_actions = Counter("seltzer_actions", "Actions of plans, by kind and outcome", ["action", "outcome"])
draining = Gauge("seltzer_draining_nodes", "Nodes whose jobs are waited for before their pods go", ["nodeset"])
stale = Gauge("seltzer_cache_stale_seconds", "Seconds since the API server last said anything", ["kind"])
leading = Gauge("seltzer_leading", "1 if this replica leads")
_cluster = ["namespace", "cluster"]
_free = Gauge("seltzer_state_volume_free_bytes", "What is left on the volume with slurmctld's state", _cluster)
_size = Gauge("seltzer_state_volume_size_bytes", "How large the volume with slurmctld's state is", _cluster)
_restarts = Gauge("seltzer_slurmctld_restarts", "How often slurmctld ended by itself in its present pod", _cluster)
_failovers = Gauge("seltzer_failovers", "How often another pod took over as the controller", _cluster)
_standbys = Gauge("seltzer_standbys", "Pods that are ready to take over as the controller", _cluster)


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


def show_cluster(namespace: str, name: str, status: SlurmClusterStatus) -> None:
    """Sets the gauges of a cluster's controller. Unknown values have no sample until they are known once."""
    volume, controller = status.volume or None, status.controller or None
    values = {
        _free: volume.free if volume else None,
        _size: volume.size if volume else None,
        _restarts: controller.restarts if controller else None,
        _failovers: controller.failovers if controller else None,
        _standbys: len(controller.standbys) if controller else None,
    }
    for gauge, number in values.items():
        if number is not None:
            gauge.labels(namespace, name).set(number)


def forget_cluster(namespace: str, name: str) -> None:
    """Removes the gauges of a cluster that no longer exists."""
    for gauge in (_free, _size, _restarts, _failovers, _standbys):
        with suppress(KeyError):
            gauge.remove(namespace, name)
