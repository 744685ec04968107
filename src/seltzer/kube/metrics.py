"""The runtime's metrics. Label children are looked up once: the lookup costs more than the counting."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram

_passes = Counter("seltzer_passes", "Passes of a controller, by outcome", ["controller", "outcome"])
_seconds = Histogram("seltzer_pass_seconds", "Duration of passes in seconds", ["controller"])
_waiting = Gauge("seltzer_queue_length", "Keys that wait for a pass", ["controller"])


@dataclass(frozen=True)
class ControllerMetrics:
    succeeded: Counter
    failed: Counter
    seconds: Histogram
    waiting: Gauge


def for_controller(name: str) -> ControllerMetrics:
    return ControllerMetrics(
        _passes.labels(name, "done"), _passes.labels(name, "failed"), _seconds.labels(name), _waiting.labels(name)
    )
