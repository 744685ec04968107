"""What a NodeSet's pods need beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.objects import NOW, nodeset, pod
from tests.builders.plan import GONE, MEMBER, UNKNOWN, seen, slurm
from tests.builders.slurm import node

from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.support import SupportNeeds, needs
from seltzer.plan.slurm_presence import SlurmState

UNREACHABLE = SlurmState(None, unreachable=True)
BUSY, ALL = SupportNeeds("busy", only_create=False, key=True), SupportNeeds("everyone", only_create=False, key=True)


@pytest.mark.parametrize(
    ("why", "observation", "expected"),
    [
        ("its first pods come", seen(nodeset(1), slurm=slurm()), BUSY),
        ("no pod is wanted", seen(nodeset(0), slurm=slurm()), None),
        ("pods stay", seen(nodeset(1), pod(), slurm=slurm(node())), BUSY),
        ("all are drained", seen(nodeset(0), pod(), slurm=slurm(node(state="MIXED DRAIN", reason="seltzer: x"))), BUSY),
        ("what goes isn't made again", seen(nodeset(1, deleted=NOW), pod(), slurm=slurm(node())), None),
        ("nor with its cluster", seen(nodeset(1), pod(), slurm=slurm(node()), closing=True), None),
        ("there is no job to lose", seen(nodeset(1), pod(), slurm=GONE), BUSY),
        ("Slurm is silent: any pod may have jobs", seen(nodeset(1), pod(), slurm=UNREACHABLE), ALL),
        ("a new leader knows nothing yet", seen(nodeset(1), pod(), slurm=UNKNOWN), replace(ALL, only_create=True)),
        (
            "only members get Slurm's key",
            seen(nodeset(1), pod(), slurm=slurm(node()), membership=replace(MEMBER, member=False, accepted=False)),
            replace(BUSY, key=False),
        ),
    ],
)
def test_pods_have_a_budget_and_the_key(
    why: str, observation: NodeSetObservation, expected: SupportNeeds | None
) -> None:
    assert needs(observation, decide(observation)) == expected, why
