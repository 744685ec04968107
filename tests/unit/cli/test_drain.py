"""`seltzer drain` and `seltzer resume`: which nodes they change, and what they say about the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.builders.facts import drained, known, pod
from tests.builders.objects import cluster, machine, nodeset
from tests.builders.slurm import node
from tests.builders.slurm import snapshot as slurm
from tests.fakes.small_server import PLACE, Server

from seltzer.api.core import Pod
from seltzer.cli import drain, kubectl
from seltzer.cli.drain import Target
from seltzer.errors import SeltzerError
from seltzer.view import facts
from seltzer.view.facts import Facts

ALL = (cluster(), nodeset(2), pod("cpu-0"), machine("n1"))


def test_a_drain_of_ours_is_signed_so_that_it_is_told_from_slurms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann[x]")
    assert drain.sign("bad disk") == "bad disk [annx]"
    assert facts.who(drained(reason=drain.sign("bad disk"))) == "annx"
    assert drain.sign(drain.checked_reason(None)) == "seltzer drain by ann[x]"
    assert facts.who(drained(reason=drain.sign("see [ticket 7]"))) == "annx"


def target(found: Facts, *names: str, nodeset: str = "") -> Target:
    return Target(PLACE, found, names or found.names, nodeset)


async def test_a_nodesets_name_stands_for_all_of_its_nodes_but_a_nodes_name_wins(answer: list[Any]) -> None:
    records = [{"name": name, "state": ["IDLE"], "comment": "seltzer ns/cpu"} for name in ("cpu-0", "cpu-1", "cpu-2")]
    answer[0] = json.dumps({"nodes": records})

    async def find(word: str, *pods: Pod, sets: Sequence[str] = ("cpu",)) -> Target:
        server = Server(cluster(), *(nodeset(2, name=each) for each in sets), *pods)
        return await drain.find(server, PLACE, word)

    pool = await find("cpu", pod("cpu-0"), pod("cpu-1"))
    assert (pool.names, pool.nodeset, pool.word) == (["cpu-0", "cpu-1", "cpu-2"], "cpu", "cpu")
    one = await find("cpu-1", pod("cpu-0"), pod("cpu-1"), sets=("cpu", "cpu-1"))
    assert (one.names, one.nodeset) == (["cpu-1"], "")
    with pytest.raises(SeltzerError, match="no node 'gpu' in namespace 'ns', nor a NodeSet; did you mean 'cpu'"):
        await find("gpu", pod("cpu-0"))
    with pytest.raises(SeltzerError, match="NodeSet 'big' has no nodes"):
        await find("big", pod("cpu-0"), sets=("cpu", "big"))


async def test_nothing_is_drained_where_slurm_can_not_be_asked(answer: list[Any]) -> None:
    answer[0] = SeltzerError("no answer")
    with pytest.raises(SeltzerError, match="Slurm can't be asked: no answer"):
        await drain.find(Server(*ALL), PLACE, "cpu-0")


def test_the_drain_of_a_nodeset_leaves_what_others_said_about_its_nodes() -> None:
    found = known(
        slurm(node("cpu-0"), drained("cpu-1"), drained("cpu-2", "seltzer: Kubernetes node n2 is cordoned")),
        pod("cpu-3"),
    )
    names, notes = drain.drainable(target(found, nodeset="cpu"))
    assert names == ["cpu-0", "cpu-2"]
    assert notes == [
        "Slurm doesn't know cpu-3 yet: nothing to do there",
        "cpu-1 is drained already, and stays so (ann: bad disk)",
    ]
    assert drain.drainable(target(found, "cpu-1")) == (["cpu-1"], []), "who names a node means it"


def test_the_resume_of_a_nodeset_resumes_what_is_drained_or_down_and_tells_the_rest() -> None:
    found = known(slurm(node("cpu-0"), drained("cpu-1"), node("cpu-2", "DOWN"), node("cpu-3", "IDLE NOT_RESPONDING")))
    names, notes = drain.resumable(target(found, nodeset="cpu"))
    assert names == ["cpu-1", "cpu-2"]
    assert notes == ["cpu-[0,3] is neither drained nor down: nothing to resume there"]
    with pytest.raises(SeltzerError, match="cpu-0 is neither drained nor down, so there is nothing to resume"):
        drain.resumable(target(found, "cpu-0"))
    with pytest.raises(SeltzerError, match="no node of cpu is drained or down, so there is nothing to resume"):
        drain.resumable(target(known(slurm(node("cpu-0"))), nodeset="cpu"))


def test_a_node_that_slurm_does_not_know_is_reported_with_what_keeps_it() -> None:
    stuck = known(slurm(), pod("cpu-0", state="Unschedulable", words="0/2 nodes fit"))
    with pytest.raises(SeltzerError, match="Slurm doesn't know cpu-0: pod cpu-0: 0/2 nodes fit"):
        drain.drainable(target(stuck, "cpu-0"))
    with pytest.raises(SeltzerError, match="Slurm doesn't know cpu-0 yet; see 'seltzer explain cpu-0'"):
        drain.drainable(target(known(slurm(), pod("cpu-0")), "cpu-0"))


def test_a_resume_of_what_seltzer_will_drain_again_says_so() -> None:
    found = known(
        slurm(
            drained("cpu-0", "seltzer: Kubernetes node n2 is cordoned"),
            drained("cpu-1"),
            drained("cpu-2", "seltzer: scale-in"),
            drained("cpu-3"),
        ),
        pod("cpu-0", "n2"),
        pod("cpu-1", "n2"),
        pod("cpu-2"),
        pod("cpu-3"),
        machines=[machine("n1"), machine("n2", cordoned=True)],
    )
    assert drain.warnings(found, found.names) == [
        "note: Seltzer drains cpu-[0-1] again for as long as this is so: Kubernetes node n2 is cordoned",
        "note: Seltzer drains cpu-2 again for as long as this is so: scale-in",
    ]


def test_all_nodes_are_changed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Sequence[str]]] = []
    monkeypatch.setattr(kubectl, "output", lambda place, pod, container, command: calls.append((pod, command)))
    drain.update(PLACE, known(slurm(), pod("cpu-0")), ["cpu-0", "cpu-1", "cpu-10"], ("State=RESUME",))
    assert calls == [("deployment/demo-slurmctld", ("scontrol", "update", "NodeName=cpu-[0-1,10]", "State=RESUME"))]
