"""What is wrong with a controller, in words."""

from __future__ import annotations

import pytest
from tests.fakes.top_world import CONTROLLER, facts, lease

from seltzer.api.core import Lease
from seltzer.view.controller import trouble


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lease(), ""),
        (lease(holder=""), "slurmctld is failing over: nobody is in charge right now"),
        (lease(holder="gone"), "slurmctld is failing over from gone"),
        (lease(phase="starting"), f"slurmctld is starting on {CONTROLLER}"),
        (lease(phase="held"), f"slurmctld is held on {CONTROLLER}; 'seltzer debug demo --release' lets it go"),
    ],
)
def test_a_slurmctld_that_is_not_in_charge_or_does_not_run_is_trouble(told: Lease, says: str) -> None:
    assert trouble("demo", facts(told=told).controller) == says
