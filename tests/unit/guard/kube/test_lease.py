"""Who holds the Lease, when several want it and the API server isn't always there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest
from tests.fakes.guard.api import LEASE, FakeApi
from tests.fakes.guard.rig import until

from seltzer.guard.kube import lease
from seltzer.guard.kube.client import ApiError, KubeClient
from seltzer.guard.kube.lease import LeaseKeeper
from seltzer.guard.settings import Settings, Times
from seltzer.wire.annotations import ACCEPT_STATE, EPOCH, SAVED

Make = Callable[..., LeaseKeeper]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as made:
        yield made


class Clock:
    """Everybody's. It stands still until it is moved. In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def later(self, what: str, ask: Callable[[], object]) -> None:
        """Let time pass until the answer is true."""

        def asked() -> object:
            self.now += 0.1
            return ask()

        until(what, asked)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lease, "time", made)
    return made


@pytest.fixture
def keeper(api: FakeApi, clock: Clock) -> Iterator[Make]:
    """Makes and starts candidates; they end with the test."""
    made: list[LeaseKeeper] = []

    def make(identity: str, lasts: float = 0.3, wake: Callable[[], None] = lambda: None) -> LeaseKeeper:
        names = ("ns", "demo-slurmctld", "demo-slurmctld")
        settings = Settings(*names, identity, f"address-of-{identity}", times=Times(lease=lasts, api=600.0))
        made.append(LeaseKeeper(client(api), settings, wake))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.end()


def client(api: FakeApi) -> KubeClient:
    return KubeClient(lambda: HTTPConnection("127.0.0.1", api.port), lambda: "token")


def test_of_many_one_holds_it_and_the_next_gets_it_when_it_is_released(api: FakeApi, keeper: Make) -> None:
    keepers = [keeper(f"pod-{number}") for number in range(4)]
    until("somebody holds it", lambda: api.holder)
    first = until("one knows", lambda: [each for each in keepers if each.term])
    assert len(first) == 1
    first[0].end()
    until("another one holds it", lambda: [each for each in keepers if each.term and each is not first[0]])
    assert [write["spec"]["holderIdentity"] for write in api.writes].count("") == 1


def test_a_guard_that_is_not_the_fastest_does_not_hold_it(api: FakeApi, keeper: Make) -> None:
    def faster() -> None:
        api.before_patch = lambda: None
        api.patch({"spec": {"holderIdentity": "faster", "leaseDurationSeconds": 600}})

    api.before_patch = faster
    slow = keeper("slow")
    until("somebody was faster", lambda: api.holder == "faster")
    slow.end()
    assert (slow.term, api.holder) == (0, "faster")


def test_a_lease_is_taken_after_its_duration_by_our_own_clock(api: FakeApi, keeper: Make, clock: Clock) -> None:
    api.take("gone")
    api.patch({"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})  # a wall clock that says it is long over
    asked: list[object] = []
    api.on_ask = asked.append
    keeper("pod-a")
    for _ in range(9):
        before = len(asked)
        until("it has looked", lambda before=before: len(asked) > before + 1)  # type: ignore[misc]
        assert api.holder == "gone"
        clock.now += 0.1
    clock.now += 0.2
    until("it is taken", lambda: api.holder == "pod-a")


def test_who_can_not_renew_holds_it_but_is_not_sure(api: FakeApi, keeper: Make, clock: Clock) -> None:
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.surely_held())
    api.away = True
    clock.later("it may be another's by now", lambda: not ours.surely_held())
    assert ours.term == 1
    api.away = False
    until("it is ours for sure", lambda: ours.surely_held())
    assert ours.term == 1


def test_who_renounces_has_to_win_it_again(api: FakeApi, keeper: Make) -> None:
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.term == 1)
    ours.give_up_term()
    until("it is ours again, in another term", lambda: ours.term == 2)


def test_who_stands_by_only_looks_and_wins_soon_after_a_clean_release(api: FakeApi, keeper: Make) -> None:
    first = keeper("pod-a")
    until("it is ours", first.surely_held)
    asked: list[object] = []
    api.on_ask = asked.append
    standby = keeper("pod-b")
    standby.report.set("running", slurm_version="26.05.5", epoch="7")
    until("both have asked often", lambda: len(asked) > 5)
    assert {write["spec"]["holderIdentity"] for write in api.writes} == {"pod-a"}
    until("who leads is announced", lambda: api.addresses)
    assert api.addresses == ["address-of-pod-a"]
    assert standby.in_contact()
    first.end()
    until("the standby has it, while no time has passed", lambda: standby.term)
    assert "epoch" not in api.report, "what it said before it won is about another term"


def test_the_winner_knows_what_the_one_before_reported_and_leaves_it_there(api: FakeApi, keeper: Make) -> None:
    annotate(api, epoch="7", saved="700", config="old", crash="{}")
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.term)
    assert (ours.inherited[EPOCH], ours.inherited[SAVED]) == ("7", "700")
    assert {name: api.report.get(name) for name in ("epoch", "saved", "crash", "config")} == {
        "epoch": "7",
        "saved": "700",
        "crash": "{}",
        "config": None,
    }
    ours.report.set(epoch="8", saved="")
    until("it tells its own", lambda: api.report.get("epoch") == "8" and "saved" not in api.report)
    assert ours.inherited[EPOCH] == "7"


def test_a_guard_that_lost_it_and_wins_again_does_not_report_what_is_over(
    api: FakeApi, keeper: Make, clock: Clock
) -> None:
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.term == 1)
    ours.report.set("running", epoch="3", saved="300")
    until("it is told", lambda: api.report.get("epoch") == "3")
    api.take("pod-b")
    annotate(api, epoch="4", saved="400")
    clock.later("it is ours again", lambda: ours.term == 2)
    mine = [write for write in api.writes if write["spec"]["holderIdentity"] == "pod-a"]
    assert mine[-1]["metadata"]["annotations"]["seltzer.dev/epoch"] == "4"
    assert (ours.inherited[EPOCH], api.report["phase"]) == ("4", "starting")


def test_what_others_ask_is_passed_on_and_an_api_server_that_is_away_changes_nothing(
    api: FakeApi, keeper: Make, clock: Clock
) -> None:
    woken: list[int] = []
    ours = keeper("pod-a", wake=lambda: woken.append(1))
    until("it is ours", lambda: ours.term)
    before = len(woken)
    annotate(api, hold="true")
    until("it is held", lambda: ours.hold)
    until("somebody was woken", lambda: len(woken) > before)
    annotate(api, hold="false")
    until("it is not", lambda: not ours.hold)
    annotate(api, hold="true")
    until("it is held", lambda: ours.hold)
    api.away = True
    clock.later("it has not heard for long", lambda: not ours.in_contact())
    assert ours.hold
    api.away = False
    annotate(api, hold=None)
    until("it is not", lambda: not ours.hold)


def test_what_is_used_up_is_removed_once(api: FakeApi, keeper: Make) -> None:
    annotate(api, accept_state="epoch-3", hold="false")
    ours = keeper("pod-a")
    until("it is ours", lambda: ours.term)
    ours.consume(ACCEPT_STATE)
    until("it is gone", lambda: "accept-state" not in api.report)
    annotate(api, accept_state="epoch-4")
    writes = len(api.writes)
    until("it was renewed", lambda: len(api.writes) > writes + 2)
    assert (api.report["accept-state"], api.report["hold"]) == ("epoch-4", "false")


def annotate(api: FakeApi, **annotations: str | None) -> None:
    named = {f"seltzer.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    api.patch({"metadata": {"annotations": named}})


def test_no_answer_and_a_strange_one_are_errors(api: FakeApi) -> None:
    asked = client(api)
    assert asked.get(LEASE)["spec"] == {}
    api.away = True
    with pytest.raises(ApiError, match="GET /apis"):
        asked.get(LEASE)
    api.away = False
    assert asked.get(LEASE)["spec"] == {}
