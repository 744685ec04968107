"""Slurm's REST does what our client relies on, and our fake does the same: each test runs on both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pytest
from tests.fakes.slurmrestd import KEY, FakeSlurmrestd
from tests.harness import Cluster

from seltzer.slurm import metrics
from seltzer.slurm.client import Outcome, SlurmClient
from seltzer.slurm.errors import Refused, SlurmError
from seltzer.slurm.hostlist import expand
from seltzer.slurm.http import Http
from seltzer.slurm.models import Node
from seltzer.slurm.nodes import NodeCache
from seltzer.slurm.token import TokenSource

T = TypeVar("T")
PREFIX = "contract-"
OURS = [f"{PREFIX}{number}" for number in range(4)]
CLOUD = {"CPUs": "2", "RealMemory": "1000", "State": "CLOUD", "Feature": "contract"}


@dataclass(frozen=True)
class Rig:
    """A cluster with the nodes cpu-0 and cpu-1, real or not."""

    client: SlurmClient
    rest: str
    slurmctld: Http
    key: bytes
    occupy: Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Real:
    """Where the real one is for us."""

    rest: str
    slurmctld: str
    key: bytes


@pytest.fixture(scope="module")
def real(slurm: Cluster) -> Iterator[Real]:
    forward = partial(slurm.sandbox.forward, namespace=slurm.namespace)
    rest = forward(f"service/{slurm.name}-slurmrestd", 6820)
    # Not by its Service: that one has no selector, and so kubectl can't follow it.
    slurmctld = forward(f"deployment/{slurm.name}-slurmctld", 6817)
    with rest as rest_address, slurmctld as slurmctld_address:
        yield Real(f"http://{rest_address}", f"http://{slurmctld_address}", slurm.key())


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "fake":
        async with FakeSlurmrestd() as fake:
            fake.add("cpu-[0-1]")

            async def occupy_fake(node: str) -> None:
                fake.occupy(node)

            client = SlurmClient(Http(fake.url), TokenSource(lambda: KEY))
            yield Rig(client, fake.url, Http(fake.url), KEY, occupy_fake)
        return
    real: Real = request.getfixturevalue("real")
    slurm: Cluster = request.getfixturevalue("slurm")
    jobs: list[str] = []

    async def occupy(node: str) -> None:
        words = ["sbatch", "--parsable", "--output=/dev/null", f"--nodelist={node}", "--wrap", "sleep 100"]
        jobs.append((await asyncio.to_thread(slurm.login, *words)).strip())

    client = SlurmClient(Http(real.rest), TokenSource(lambda: real.key))
    yield Rig(client, real.rest, Http(real.slurmctld), real.key, occupy)
    if jobs:
        await asyncio.to_thread(slurm.login, "scancel", *jobs)
    await client.delete(OURS)


async def until(what: str, ask: Callable[[], Awaitable[T | None]], deadline: float = 60.0) -> T:
    """Ask until the answer is neither None nor False. An error of Slurm is no answer yet."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        answer = None
        with suppress(SlurmError):
            answer = await ask()
        if answer is not None and answer is not False:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited {deadline:.0f} s in vain: {what}")


async def nodes(client: SlurmClient) -> dict[str, Node]:
    listed = await client.nodes()
    assert listed
    return {node.name: node for node in listed.nodes}


async def quiet(client: SlurmClient) -> int:
    """An update_time since when nothing changed."""

    async def ask() -> int | None:
        listed = await client.nodes()
        assert listed
        return listed.update_time if await client.nodes(listed.update_time) is None else None

    return await until("nothing changes", ask)


async def test_the_newest_version_that_both_know_is_spoken(rig: Rig) -> None:
    assert await rig.client.version() == "v0.0.45"


async def test_what_we_read_is_what_slurm_tells(rig: Rig) -> None:
    client = rig.client
    (ping,) = await client.ping()
    assert ping.responding and ping.primary
    there = await nodes(client)
    node = there["cpu-0"]
    assert (node.base, node.drained, node.occupied) == ("IDLE", False, False)
    assert (node.hostname, node.features, node.partitions) == ("cpu-0", ("cpu", "set_cpu"), ("cpu",))
    assert node.cpus and node.real_memory and node.version and node.boot_time
    (partition,) = await client.partitions()
    assert (partition.name, partition.up) == ("cpu", True)
    assert {"cpu-0", "cpu-1"} <= set(expand(partition.nodes.configured))
    statistics = await client.diag()
    assert statistics.now and statistics.since and statistics.since <= statistics.now
    assert await client.reservations() == ()
    config = await client.config()
    assert config.boot_time <= statistics.now
    assert config.settings["MaxNodeCount"] == 10_000


async def test_job_counts_come_from_slurmctlds_metrics(rig: Rig) -> None:
    counts = await metrics.job_counts(rig.slurmctld)
    assert counts.running >= 0 and counts.pending >= 0


async def test_nodes_are_created_drained_resumed_and_deleted_in_one_call_each(rig: Rig) -> None:
    client = rig.client
    assert await client.create(OURS, CLOUD) == outcome(OURS)
    there = await nodes(client)
    assert {(there[name].base, there[name].cpus, there[name].features) for name in OURS} == {("IDLE", 2, ("contract",))}

    assert await client.drain(OURS, 'it\'s "broken", say #1') == outcome(OURS)
    there = await nodes(client)
    assert {(there[name].drained, there[name].reason) for name in OURS} == {(True, 'it\'s "broken", say #1')}
    assert {there[name].reason_set_by_user for name in OURS} == {"slurm"}

    assert await client.resume(OURS) == outcome(OURS)
    there = await nodes(client)
    assert {(there[name].drained, there[name].reason) for name in OURS} == {(False, "")}

    assert await client.delete(OURS) == outcome(OURS)
    assert not set(OURS) & (await nodes(client)).keys()


async def test_a_node_that_does_not_exist_fails_alone(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS[:2], CLOUD)
    drained = await client.drain(OURS[:3], "some")
    assert (drained.done, drained.failed) == (frozenset(OURS[:2]), {OURS[2]: "Slurm has no such node"})
    resumed = await client.resume(OURS[:3])
    assert (resumed.done, resumed.failed) == (drained.done, drained.failed)
    # Slurm goes through them in order, and ends at the first that doesn't exist.
    drained = await client.drain(["a-missing", *OURS[:2], "z-missing"], "more")
    assert (set(drained.done), set(drained.failed)) == (set(OURS[:2]), {"a-missing", "z-missing"})
    assert {(await nodes(client))[name].reason for name in OURS[:2]} == {"more"}
    assert await client.delete(OURS[:3]) == outcome(OURS[:3]), "what never existed is gone, too"


async def test_a_node_that_exists_keeps_no_other_from_being_created(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS[:1], CLOUD)
    created = await client.create(OURS, CLOUD)
    assert created.done == frozenset(OURS[1:])
    assert "already exists" in created.failed[OURS[0]]
    again = await client.create(OURS, CLOUD)
    assert (set(again.done), set(again.failed)) == (set(), set(OURS))


async def test_a_hidden_future_node_counts_as_existing(rig: Rig) -> None:
    client = rig.client
    assert await client.create(OURS[:1], {**CLOUD, "State": "FUTURE"}) == outcome(OURS[:1])
    assert OURS[0] not in await nodes(client)
    created = await client.create(OURS[:2], CLOUD)
    assert (set(created.done), set(created.failed)) == (set(OURS[1:2]), set(OURS[:1]))
    assert await client.delete(OURS[:2]) == outcome(OURS[:2])


async def test_a_line_that_slurm_does_not_like_creates_nothing(rig: Rig) -> None:
    created = await rig.client.create(OURS, {**CLOUD, "Nonsense": "1"})
    assert (set(created.done), set(created.failed)) == (set(), set(OURS))
    assert "Failure to create node" in created.failed[OURS[0]]


async def test_more_nodes_than_there_is_room_for_creates_none(rig: Rig) -> None:
    names = [f"{PREFIX}many-{number}" for number in range(10_001)]
    created = await rig.client.create(names, CLOUD)
    assert (set(created.done), set(created.failed)) == (set(), set(names))
    assert "node table is full" in created.failed[names[0]]


async def test_resuming_healthy_nodes_is_done_though_slurm_calls_it_an_error(rig: Rig) -> None:
    assert await rig.client.resume(["cpu-0", "cpu-1"]) == outcome(["cpu-0", "cpu-1"])


async def test_a_nodesets_name_means_all_its_nodes_so_no_node_may_have_it(rig: Rig) -> None:
    await rig.client.drain(["set_cpu"], "was that meant?")
    there = await nodes(rig.client)
    assert (await rig.client.resume(["cpu-0", "cpu-1"])).failed == {}
    assert there["cpu-0"].drained and there["cpu-1"].drained


async def test_a_busy_node_is_not_deleted_and_the_others_are(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS, CLOUD)
    await rig.occupy("cpu-1")

    async def busy() -> bool:
        return (await nodes(client))["cpu-1"].occupied

    await until("a job is on cpu-1", busy)
    deleted = await client.delete([*OURS, "cpu-1"])
    assert (set(deleted.done), set(deleted.failed)) == (set(OURS), {"cpu-1"})
    assert "busy" in deleted.failed["cpu-1"]
    assert "cpu-1" in await nodes(client)


async def test_an_answer_with_update_time_is_nothing_or_everything(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS, CLOUD)
    since = await quiet(client)
    await client.drain(OURS[:1], "a change")
    listed = await client.nodes(since)
    assert listed and set(OURS) < {node.name for node in listed.nodes}, "unchanged nodes are in it"
    since = await quiet(client)
    await client.delete(OURS[:1])
    listed = await client.nodes(since)
    assert listed and set(OURS) & {node.name for node in listed.nodes} == set(OURS[1:]), "a deletion is a change"


async def test_an_update_time_in_the_future_hides_changes(rig: Rig) -> None:
    await rig.client.create(OURS[:1], CLOUD)
    now = (await rig.client.diag()).now
    assert now
    assert await rig.client.nodes(now + 1000) is None


async def test_the_cache_follows(rig: Rig) -> None:
    cache = NodeCache(rig.client)
    first = await cache.poll()
    assert {"cpu-0", "cpu-1"} <= first.names and first.known
    await rig.client.create(OURS, CLOUD)
    assert set(OURS) <= (await cache.poll()).names
    await rig.client.delete(OURS[:2])
    assert set(OURS[:2]) <= (await cache.poll()).names
    assert cache.view and set(OURS) & cache.view.nodes.keys() == set(OURS[2:])


async def test_a_token_of_somebody_else_is_refused(rig: Rig) -> None:
    stranger = SlurmClient(Http(rig.rest), TokenSource(lambda: b"x" * 32))
    with pytest.raises(Refused):
        await stranger.nodes()
    with pytest.raises(Refused):
        await stranger.drain(["cpu-0"], "mischief")
    assert not (await nodes(rig.client))["cpu-0"].drained


async def test_an_expired_token_is_refused(rig: Rig) -> None:
    with pytest.raises(Refused):
        await SlurmClient(Http(rig.rest), TokenSource(lambda: rig.key, clock=lambda: 1e9)).diag()


async def test_a_plain_user_may_look_but_not_drain(rig: Rig) -> None:
    client = SlurmClient(Http(rig.rest), TokenSource(lambda: rig.key, user="user"))
    drained = await client.drain(["cpu-0"], "mischief")
    assert "Invalid user id" in drained.failed["cpu-0"]
    assert not (await nodes(rig.client))["cpu-0"].drained


async def is_occupied(client: SlurmClient, node: str) -> bool:
    return (await nodes(client))[node].occupied


async def is_free(client: SlurmClient, node: str) -> bool:
    return not await is_occupied(client, node)


async def test_a_comment_is_kept_by_whatever_else_changes(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS[:2], CLOUD)
    assert await client.comment(OURS[:2], 'seltzer: "mine" #1') == outcome(OURS[:2])
    await client.drain(OURS[:1], "some")
    await client.resume(OURS[:1])
    there = await nodes(client)
    assert {there[name].comment for name in OURS[:2]} == {'seltzer: "mine" #1'}
    assert await client.comment(OURS[:2], "") == outcome(OURS[:2])
    there = await nodes(client)
    assert {there[name].comment for name in OURS[:2]} == {""}


async def test_a_reason_has_the_time_at_which_it_became_that(rig: Rig) -> None:
    client = rig.client
    await client.create(OURS[:1], CLOUD)
    assert (await nodes(client))[OURS[0]].reason_time == 0
    before = (await client.diag()).now or 0
    await client.drain(OURS[:1], "some")
    first = (await nodes(client))[OURS[0]].reason_time
    assert first is not None and before <= first <= before + 60

    async def a_second_has_passed() -> bool:
        return ((await client.diag()).now or 0) > first

    await until("a second has passed", a_second_has_passed)
    await client.drain(OURS[:1], "some")
    assert (await nodes(client))[OURS[0]].reason_time == first, "it is the same reason"
    await client.drain(OURS[:1], "another")
    assert (await nodes(client))[OURS[0]].reason_time != first
    await client.resume(OURS[:1])
    assert (await nodes(client))[OURS[0]].reason_time == 0


async def test_a_node_that_is_set_down_has_no_jobs_any_more(rig: Rig) -> None:
    client = rig.client
    await rig.occupy("cpu-0")
    await until("a job is on cpu-0", lambda: is_occupied(client, "cpu-0"))
    assert await client.down(["cpu-0"], "away with it") == outcome(["cpu-0"])
    try:
        await until("the job has left", lambda: is_free(client, "cpu-0"))
        node = (await nodes(client))["cpu-0"]
        # Its slurmd's answer to the end of the job brings it back within a second (ReturnToService=2).
        assert (node.base, node.reason) in (("DOWN", "away with it"), ("IDLE", ""))
        assert node.alloc_cpus == 0
    finally:
        assert await client.resume(["cpu-0"]) == outcome(["cpu-0"])
    node = (await nodes(client))["cpu-0"]
    assert (node.base, node.reason) == ("IDLE", "")

    # slurmctld pings it first, when the pings to others that are under way have ended; until then it gets no job.
    async def responds() -> bool:
        return "NOT_RESPONDING" not in (await nodes(client))["cpu-0"].state

    await until("it takes jobs again", responds)


async def test_all_jobs_on_a_node_are_killed_and_no_others(rig: Rig) -> None:
    client = rig.client
    for name in ("cpu-0", "cpu-1"):
        await rig.occupy(name)
        await until(f"a job is on {name}", partial(is_occupied, client, name))
    await client.kill_jobs(["cpu-0", "missing-7"])
    await until("the job is gone", lambda: is_free(client, "cpu-0"))
    there = await nodes(client)
    assert (there["cpu-0"].base, there["cpu-1"].occupied) == ("IDLE", True)


def outcome(done: list[str]) -> Outcome:
    return Outcome(frozenset(done))


async def test_a_reconfigure_leaves_nodes_and_jobs_alone(rig: Rig) -> None:
    await rig.occupy("cpu-0")

    async def occupied() -> bool:
        return bool((await nodes(rig.client))["cpu-0"].alloc_cpus)

    await until("the job runs", occupied)
    await rig.client.reconfigure()
    assert await until("Slurm answers", occupied)
    assert {"cpu-0", "cpu-1"} <= set(await nodes(rig.client))
