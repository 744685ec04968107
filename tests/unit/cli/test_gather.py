"""Both sides are asked, and a gap in one doesn't hide the other."""

from __future__ import annotations

from typing import Any

from tests.builders.facts import pod
from tests.builders.objects import cluster, machine, nodeset
from tests.builders.slurm import CLOCK
from tests.fakes.small_server import PLACE, Server

from seltzer.cli import gather
from seltzer.errors import SeltzerError
from seltzer.view import nodes

ALL = (cluster(), nodeset(2), pod("cpu-0"), machine("n1"))


async def test_both_sides_are_asked(answer: list[Any]) -> None:
    found = await gather.facts(Server(*ALL), PLACE, "demo")
    assert (found.names, found.gaps, found.silence) == (["cpu-0"], (), "")
    assert found.slurm is not None and found.slurm.now == CLOCK
    assert found.machine("cpu-0") == machine("n1")


async def test_a_slurm_that_does_not_answer_is_reported_and_the_rest_is_known(answer: list[Any]) -> None:
    answer[0] = SeltzerError("Unable to contact slurm controller (connect failure)")
    found = await gather.facts(Server(*ALL), PLACE, "demo")
    assert found.slurm is None
    assert found.gaps == ("Slurm can't be asked: Unable to contact slurm controller (connect failure)",)
    assert found.names == ["cpu-0"]


async def test_half_a_list_of_slurms_is_none(answer: list[Any]) -> None:
    answer[0] = "half"
    assert "cut off" in (await gather.facts(Server(*ALL), PLACE, "demo")).silence


async def test_what_one_may_not_see_is_unknown_and_not_none(answer: list[Any]) -> None:
    answer[0] = SeltzerError("Error from server (Forbidden): pods is forbidden")
    found = await gather.facts(Server(*ALL, forbidden=["Node", "Pod", "Event"]), PLACE, "demo")
    assert (found.machines, found.pods, found.slurm) == (None, None, None)
    assert found.silence == "Slurm can't be asked: you may not run commands in slurmctld's pod"
    assert set(found.gaps[1:]) == {
        "you may not see Kubernetes' nodes",
        "you may not see the pods in namespace ns",
        "you may not see slurmctld's Lease and pods",
        "you may not see Events",
    }


async def test_pods_of_a_guest_that_can_not_be_seen_make_all_pods_unknown(answer: list[Any]) -> None:
    home = cluster(allows=["guest"])
    found = await gather.facts(Server(home, *ALL[1:], forbidden=["Pod in guest"]), PLACE, "demo", happened=False)
    assert (found.pods, found.gaps) == (None, ("you may not see the pods in namespace guest",))
    assert [each.pod for each in nodes.rows(found)] == ["?"], "it has a pod or none: nobody knows"
