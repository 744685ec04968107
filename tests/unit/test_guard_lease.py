"""Who holds the Lease, when several want it and the API server isn't always there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest
from tests.fakes.guard_api import LEASE, FakeApi
from tests.fakes.guard_rig import until

from seltzer.guard.api import Api, ApiError
from seltzer.guard.lease import Keeper
from seltzer.guard.settings import Settings, Times

Make = Callable[[str], Keeper]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as made:
        yield made


@pytest.fixture
def keeper(api: FakeApi) -> Iterator[Make]:
    """Makes and starts candidates; they end with the test."""
    made: list[Keeper] = []

    def make(identity: str) -> Keeper:
        names = ("ns", "demo-slurmctld", "demo-slurmctld")
        settings = Settings(*names, identity, f"address-of-{identity}", times=Times(lease=1.0, api=1.0))
        made.append(Keeper(client(api), settings, lambda: None))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.end()


def client(api: FakeApi) -> Api:
    return Api(lambda: HTTPConnection("127.0.0.1", api.port, timeout=1), lambda: "token")


def test_of_many_one_holds_it_and_the_next_gets_it_when_it_is_released(api: FakeApi, keeper: Make) -> None:
    keepers = [keeper(f"pod-{number}") for number in range(4)]
    until("somebody holds it", lambda: api.holder)
    first = until("one knows", lambda: [each for each in keepers if each.term])
    assert len(first) == 1
    first[0].end()
    until("another one holds it", lambda: [each for each in keepers if each.term and each is not first[0]])
    assert [write["spec"]["holderIdentity"] for write in api.writes].count("") == 1


def test_who_is_not_the_fastest_does_not_hold_it(api: FakeApi, keeper: Make) -> None:
    def faster() -> None:
        api.before_patch = lambda: None
        api.patch({"spec": {"holderIdentity": "faster", "leaseDurationSeconds": 600}})

    api.before_patch = faster
    slow = keeper("slow")
    until("somebody was faster", lambda: api.holder == "faster")
    slow.end()
    assert (slow.term, api.holder) == (0, "faster")


def test_a_lease_is_taken_after_its_duration_by_our_own_clock(api: FakeApi, keeper: Make) -> None:
    api.take("gone")
    api.patch({"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})  # a wall clock that says it is long over
    started = time.monotonic()
    keeper("pod-a")
    until("it is taken", lambda: api.holder == "pod-a")
    assert time.monotonic() - started >= 1.0


def test_who_can_not_renew_holds_it_but_is_not_sure(api: FakeApi, keeper: Make) -> None:
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.sure())
    api.away = True
    until("it may be another's by now", lambda: not ours.sure())
    assert ours.term == 1
    api.away = False
    until("it is ours for sure", lambda: ours.sure())
    assert ours.term == 1


def test_who_renounces_has_to_win_it_again(api: FakeApi, keeper: Make) -> None:
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.term == 1)
    ours.renounce()
    until("it is ours again, in another term", lambda: ours.term == 2)


def test_no_answer_and_a_strange_one_are_errors(api: FakeApi) -> None:
    asked = client(api)
    assert asked.get(LEASE)["spec"] == {}
    api.away = True
    with pytest.raises(ApiError, match="GET /apis"):
        asked.get(LEASE)
    api.away = False
    assert asked.get(LEASE)["spec"] == {}
