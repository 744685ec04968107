"""What the pod's manifest says about the guard."""

from __future__ import annotations

import pytest

from seltzer.guard.settings import from_environment

GIVEN = {
    "SELTZER_NAMESPACE": "ns",
    "SELTZER_LEASE": "lease",
    "SELTZER_ENDPOINTSLICE": "slice",
    "SELTZER_IDENTITY": "pod",
    "SELTZER_ADDRESS": "address",
}


@pytest.mark.parametrize(
    ("duration", "lease", "api"),
    [(None, 3, 1), ("2", 2, 2 / 3), ("2.5", 2.5, 2.5 / 3), ("60", 60, 3), ("300", 300, 3)],
)
def test_a_call_that_got_stuck_can_be_made_again_while_the_lease_lasts(
    duration: str | None, lease: float, api: float
) -> None:
    times = from_environment(GIVEN | ({"SELTZER_LEASE_DURATION": duration} if duration else {})).times
    assert (times.lease, times.api) == (lease, api)
    assert times.lease / 5 + 2 * times.api < times.lease


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SELTZER_LEASE_DURATION", "1.9", "is 1.9, but a Lease has to last from 2 to 300 seconds"),
        ("SELTZER_LEASE_DURATION", "301", "is 301, but a Lease has to last from 2 to 300 seconds"),
        ("SELTZER_LEASE_DURATION", "5s", "has to be a number of seconds"),
        ("SELTZER_LEASE_DURATION", "-1", "has to be a number of seconds"),
        ("SELTZER_LEASE_DURATION", "nan", "has to be a number of seconds"),
        ("SELTZER_KEEP_JOBS", "yes", "has to be true or false"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(name: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} {why}"):
        from_environment({**GIVEN, name: value})


@pytest.mark.parametrize(
    ("said", "kept"), [({}, True), ({"SELTZER_KEEP_JOBS": "true"}, True), ({"SELTZER_KEEP_JOBS": "false"}, False)]
)
def test_jobs_are_kept_unless_somebody_says_otherwise(said: dict[str, str], kept: bool) -> None:
    assert from_environment(GIVEN | said).keep_jobs is kept
