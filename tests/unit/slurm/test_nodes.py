"""The node cache knows what Slurm last said and how old that is, and never takes "unknown" for "none"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.fakes.slurmrestd import KEY, FakeSlurmrestd, html

from seltzer.slurm import rest
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.errors import SlurmError, Unavailable
from seltzer.slurm.http import Http
from seltzer.slurm.models import Node, NodeList, Statistics
from seltzer.slurm.nodes import Change, NodeCache, Pace
from seltzer.slurm.token import TokenSource

PACE = Pace(busy=1, idle=15, resync=300, stale=60)


class Clock:
    """One for all: the cache's, and slurmctld's."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A cache before a fake that has three nodes; time passes only on request."""

    def __init__(self, fake: FakeSlurmrestd, clock: Clock) -> None:
        self.fake = fake
        self.clock = clock
        self.waits: list[float] = []
        self.told: list[Change] = []
        client = SlurmClient(Http(fake.url), TokenSource(lambda: KEY, clock=clock))
        self.cache = NodeCache(client, PACE, clock=clock, wait=self._wait)
        self.cache.watch(self.told.append)

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        self.waits.append(seconds)
        if not event.is_set():
            self.clock.now += seconds
        await asyncio.sleep(0)

    async def poll(self, after: float = 2.0) -> Change:
        self.clock.now += after
        return await self.cache.poll()

    def names(self) -> set[str] | None:
        return set(self.cache.view.nodes) if self.cache.view else None

    def lists(self) -> list[str]:
        """The node lists that were asked for, by their query."""
        return [r.partition("nodes/")[2] for r in self.fake.requests if "nodes/" in r]


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(rest, "FIRST_PAUSE", 0.0)
    clock = Clock()
    async with FakeSlurmrestd(clock=clock) as fake:
        fake.add("n[0-2]")
        yield Rig(fake, clock)


async def test_before_the_first_answer_everything_is_unknown(rig: Rig) -> None:
    assert (rig.cache.view, rig.cache.age) == (None, None)
    rig.fake.faults.extend([html()] * 9)
    assert await rig.poll() == Change(known=False)
    assert rig.cache.view is None
    assert isinstance(rig.cache.failure, Unavailable)
    assert rig.told == []


async def test_the_first_answer_tells_all_nodes(rig: Rig) -> None:
    change = await rig.poll()
    assert change == Change(frozenset({"n0", "n1", "n2"}))
    assert rig.told == [change]
    assert (rig.names(), rig.cache.age, rig.cache.failure) == ({"n0", "n1", "n2"}, 0.0, None)


async def test_a_cluster_without_nodes_is_known_to_have_none(rig: Rig) -> None:
    rig.fake.forget("n[0-2]")
    assert (await rig.poll()).known
    assert rig.names() == set()
    assert rig.told == [Change()]


async def test_nothing_new_costs_no_list_and_wakes_nobody(rig: Rig) -> None:
    await rig.poll()
    await rig.poll()
    rig.told.clear()
    assert await rig.poll() == Change()
    assert rig.lists()[0] == "" and all("update_time" in query for query in rig.lists()[1:])
    assert rig.told == []
    assert rig.cache.age == 0.0


async def test_after_a_change_of_our_own_all_nodes_are_read(rig: Rig) -> None:
    """slurmctld doesn't tell that its last node was deleted: to it, nothing changed."""
    await rig.poll()
    await rig.poll()
    rig.cache.changed()
    await rig.poll()
    await rig.poll()
    assert [bool(query) for query in rig.lists()] == [False, True, False, True]


async def test_a_change_of_our_own_during_a_poll_is_not_forgotten(rig: Rig) -> None:
    await rig.poll()
    rig.clock.now += 2.0
    asking = asyncio.create_task(rig.cache.poll())
    await asyncio.sleep(0)
    rig.clock.now += 1.0
    rig.cache.changed()
    await asking
    await rig.poll()
    assert rig.lists()[-1] == ""


async def test_changed_new_and_vanished_nodes_are_reported_by_name(rig: Rig) -> None:
    await rig.poll()
    rig.fake.change("n0", state=["MIXED"], alloc_cpus=1)
    rig.fake.add("n3")
    rig.fake.forget("n2")
    assert (await rig.poll()).names == {"n0", "n2", "n3"}
    assert rig.cache.view and rig.cache.view.nodes["n0"].occupied
    assert rig.names() == {"n0", "n1", "n3"}


async def test_a_change_in_the_same_second_is_not_missed(rig: Rig) -> None:
    await rig.poll()
    rig.fake.change("n1", reason="at once")
    assert (await rig.poll(after=0)).names == {"n1"}
    rig.fake.change("n2", reason="later in that second")
    assert (await rig.poll(after=1)).names == {"n2"}


async def test_what_nobody_looks_at_is_no_change(rig: Rig) -> None:
    await rig.poll()
    rig.fake.change("n1", cpu_load=999)
    assert await rig.poll() == Change()


async def test_slurmrestd_away_for_a_minute_and_back(rig: Rig) -> None:
    await rig.poll()
    await rig.fake.stop()
    assert (await rig.poll(after=59)).known, "what is known is known for a while"
    assert rig.names() == {"n0", "n1", "n2"} and rig.cache.age == 59
    assert rig.told[1:] == []
    assert not (await rig.poll(after=2)).known
    assert rig.names() is None
    assert rig.told[1:] == [Change(known=False)]
    assert not (await rig.poll()).known
    assert rig.told[2:] == [], "told once"
    await rig.fake.start()
    rig.fake.change("n1", reason="meanwhile")
    assert await rig.poll() == Change(frozenset({"n1"}))
    assert rig.told[2:] == [Change(frozenset({"n1"}))]


async def test_that_slurmrestd_is_back_is_reported_once_even_if_nothing_was_forgotten_meanwhile(rig: Rig) -> None:
    """Somebody may have been refused in between, and waits."""
    await rig.poll()
    await rig.fake.stop()
    await rig.poll()
    await rig.poll()
    assert rig.told[1:] == [], "nothing is unknown yet"
    await rig.fake.start()
    await rig.poll()
    assert rig.told[1:] == [Change()]
    await rig.poll()
    assert rig.told[2:] == [], "told once"


async def test_the_view_becomes_unknown_without_a_poll(rig: Rig) -> None:
    await rig.poll()
    rig.clock.now += PACE.stale + 1
    assert rig.cache.view is None


async def test_a_restart_of_slurmctld_is_seen(rig: Rig) -> None:
    await rig.poll()
    rig.clock.now += 10
    rig.fake.restart_slurmctld()
    assert (await rig.poll()).restarted
    assert not (await rig.poll()).restarted


async def test_a_restart_with_a_clock_behind_hides_nothing(rig: Rig) -> None:
    """slurmctld comes back on a machine whose clock is an hour behind, and has lost a node."""
    await rig.poll()
    rig.fake.clock = lambda: rig.clock.now - 3600
    rig.fake.forget("n1")
    rig.fake.restart_slurmctld()
    assert await rig.poll() == Change(frozenset({"n1"}), restarted=True)


async def test_a_clock_set_back_without_a_restart_is_found_by_the_resync(rig: Rig) -> None:
    await rig.poll()
    rig.fake.clock = lambda: rig.clock.now - 3600
    rig.fake.forget("n1")
    assert (await rig.poll()).names == frozenset()
    assert (await rig.poll(after=PACE.resync)).names == {"n1"}


async def test_one_second_while_something_is_in_flight_and_slower_when_idle(rig: Rig) -> None:
    await rig.poll()
    assert rig.cache.pause == 15
    rig.cache.busy("drain n1", True)
    rig.cache.busy("drain n2", True)
    rig.cache.busy("drain n1", False)
    assert rig.cache.pause == 1
    rig.cache.busy("drain n2", False)
    assert rig.cache.pause == 15


async def test_failures_make_it_ask_less_often_but_never_stop(rig: Rig) -> None:
    await rig.fake.stop()
    pauses = []
    for _ in range(40):
        await rig.poll()
        pauses.append(rig.cache.pause)
    assert pauses[:6] == [1, 2, 4, 8, 15, 15] and set(pauses[6:]) == {15}
    await rig.fake.start()
    await rig.poll()
    assert rig.cache.failure is None


async def test_it_runs_until_cancelled_and_wakes_when_somebody_gets_busy(rig: Rig) -> None:
    polled = asyncio.Event()
    rig.cache.watch(lambda change: rig.cache.busy("me", True) if len(rig.told) == 1 else polled.set())
    running = asyncio.create_task(rig.cache.run())
    while len(rig.waits) < 1:
        await asyncio.sleep(0)
    rig.fake.change("n1", reason="x")
    await polled.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(rig.waits) == {1}
    assert rig.told[1].names == {"n1"}


async def test_the_real_wait_ends_when_woken(rig: Rig) -> None:
    client = SlurmClient(Http(rig.fake.url), TokenSource(lambda: KEY, clock=rig.clock))
    cache = NodeCache(client, Pace(idle=1000, stale=5000))
    running = asyncio.create_task(cache.run())
    changes: asyncio.Queue[Change] = asyncio.Queue()
    stop = cache.watch(changes.put_nowait)
    assert (await changes.get()).names == {"n0", "n1", "n2"}
    rig.fake.forget("n2")
    cache.wake()
    assert (await changes.get()).names == {"n2"}
    stop()
    rig.fake.add("n9")
    cache.wake()
    while not cache.view or "n9" not in cache.view.nodes:
        await asyncio.sleep(0)
    running.cancel()
    assert changes.empty()


async def test_only_slurms_failures_are_failures(rig: Rig) -> None:
    """A bug of ours ends the loop, where somebody sees it, instead of looking like an outage."""

    def broken(_: Change) -> None:
        raise ZeroDivisionError

    rig.cache.watch(broken)
    with pytest.raises(ZeroDivisionError):
        await rig.poll()
    assert not isinstance(rig.cache.failure, SlurmError)


class Gated:
    """A source whose first "nothing changed" comes late, when a newer answer could have come in between."""

    def __init__(self) -> None:
        self.there = {"cpu-0"}
        self.gate = asyncio.Event()
        self.asked = 0

    async def diag(self) -> Statistics:
        return Statistics()

    async def nodes(self, update_time: int | None = None) -> NodeList | None:
        self.asked += 1
        if self.asked == 2:
            await self.gate.wait()
            return None
        return NodeList(tuple(Node(name, ("IDLE",)) for name in self.there), 1)


async def test_a_late_word_that_nothing_changed_brings_back_no_node_that_is_gone() -> None:
    source = Gated()
    cache = NodeCache(source, PACE)
    await cache.poll()
    late = asyncio.create_task(cache.poll())
    await asyncio.sleep(0)
    source.there.clear()
    newer = asyncio.create_task(cache.poll())
    await asyncio.sleep(0)
    source.gate.set()
    await asyncio.gather(late, newer)
    assert cache.view is not None and not cache.view.nodes
