"""Leader election by the Lease. Publishes the leader, too: its report on the Lease, its address in the EndpointSlice.

The Lease only elects; the epoch fences. Two guards that both believe they hold the Lease do no harm, so a holder that
can't reach the API server carries on. It stops when it sees another holder.

A guard that stands by only reads: it writes nothing until the Lease is free.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

from seltzer.guard import log
from seltzer.guard.kube.client import ApiError, Conflict, Json, KubeClient
from seltzer.guard.kube.report import Report, now
from seltzer.guard.settings import Settings
from seltzer.wire.annotations import ACCEPT_STATE, HOLD, PREFIX

REQUESTS = (HOLD, ACCEPT_STATE)
"""Annotations of the Lease by which people and the operator make requests."""


class LeaseKeeper:
    """A thread that wins the Lease, renews it, and releases it at the end.

    `term` is 0 while another guard holds the Lease, and a new number each time this guard wins it.
    """

    def __init__(self, api: KubeClient, settings: Settings, wake: Callable[[], None]) -> None:
        self.report = Report(self._renew_now)
        self.inherited: Mapping[str, str] = {}
        """The Lease's annotations when it was won: what the previous holder reported."""
        self.annotations: Mapping[str, str] = {}
        """The same, as of the API server's last answer. They stay as they are while it can't be reached."""
        self._api = api
        self._settings = settings
        self._times = settings.times
        self._wake = wake
        base = f"/namespaces/{settings.namespace}"
        self._lease = f"/apis/coordination.k8s.io/v1{base}/leases/{settings.lease}"
        self._slice = f"/apis/discovery.k8s.io/v1{base}/endpointslices/{settings.endpointslice}"
        self._won = 0
        self._held = False
        self._version = ""
        self._renewed = -math.inf  # when the last successful renewal was sent
        self._seen: tuple[str, float] = ("", 0.0)  # the Lease's resourceVersion, and when it was first seen
        self._expires = math.inf  # when another holder's Lease expires, unless it is renewed
        self._announced = -math.inf  # when the EndpointSlice last had our address
        self._contact = -math.inf  # when the API server last answered about the Lease
        self._consumed: set[str] = set()  # requests that have been carried out and are to be removed
        self._trouble: dict[str, str] = {}  # the last error of each step
        self._due = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="lease")

    def start(self) -> None:
        self._thread.start()

    @property
    def term(self) -> int:
        return self._won if self._held else 0

    def surely_held(self) -> bool:
        """Whether no other guard can hold the Lease now: others wait a full duration after our last renewal."""
        return self._held and time.monotonic() - self._renewed < self._times.lease / 2

    @property
    def hold(self) -> bool:
        """Whether slurmctld is requested to stay down."""
        return self.annotations.get(HOLD) == "true"

    def in_contact(self) -> bool:
        """Whether the API server answered recently enough for us to notice a free Lease."""
        return time.monotonic() - self._contact < self._times.lease

    def consume(self, name: str) -> None:
        """Remove a request's annotation: it has been carried out, and must not be carried out twice."""
        if name in self.annotations:
            self._consumed.add(name)
            self._due.set()

    def give_up_term(self) -> None:
        """Give up the term, whatever the Lease says: the epoch belongs to another guard. Then compete again."""
        self._held = False
        self._due.set()

    def end(self) -> None:
        """Release the Lease if it is ours, so that the next holder needn't wait. Returns soon even if that fails."""
        self._ending.set()
        self._due.set()
        self._thread.join(2 * self._times.api + 1)

    def _renew_now(self) -> None:
        if self._held:
            self._due.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._attempt(self._renew if self._held else self._try_acquire)
            if self._held and not self._ending.is_set():
                self._attempt(self._announce)
            self._due.wait(self._pause())
            self._due.clear()
        if self._held:
            self._attempt(self._release)

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # malformed answers included: no other thread would renew the Lease
            trouble = str(error) if isinstance(error, ApiError) else f"an unexpected answer ({error!r})"
            if trouble != self._trouble.get(step.__name__):  # logged once, not once a second
                log.say(f"the API server: {trouble}")
            self._trouble[step.__name__] = trouble
        else:
            self._trouble.pop(step.__name__, None)

    def _pause(self) -> float:
        if self._held:
            return self._times.lease / 5
        left = self._expires - time.monotonic()  # wakes up right when the Lease may be taken
        return min(self._times.lease / 10, left) if left > 0 else self._times.lease / 10

    def _try_acquire(self) -> None:
        """Take the Lease if it is free, already ours, or not renewed for its whole duration."""
        lease = self._get()
        version, spec = lease["metadata"]["resourceVersion"], lease.get("spec") or {}
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        holder = spec.get("holderIdentity") or ""
        mine = holder == self._settings.identity
        lasts = spec.get("leaseDurationSeconds") or self._times.lease
        self._expires = self._seen[1] + lasts if holder and not mine else math.inf
        if holder and not mine and time.monotonic() < self._expires:
            return
        inherited = self.annotations
        self.report.inherit()
        wanted = self._spec()
        if not mine:
            # The first holder takes it over from nobody, which is no transition.
            transitions = (spec.get("leaseTransitions") or 0) + 1 if spec.get("acquireTime") else 0
            wanted |= {"acquireTime": wanted["renewTime"], "leaseTransitions": transitions}
        try:
            self._write(version, wanted)
        except Conflict:
            return  # another guard was faster
        log.say(f"won the Lease {self._settings.lease}" + (f" from {holder}" if holder and not mine else ""))
        self._announced = -math.inf
        self.inherited = inherited
        self._won += 1
        self._held = True
        self._wake()

    def _renew(self) -> None:
        try:
            self._write(self._version, self._spec())
        except Conflict:
            # Either 1. another guard took it, 2. somebody annotated or recreated it, or 3. our own write
            # succeeded and its answer got lost.
            lease = self._get()
            holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if holder not in ("", self._settings.identity):
                log.say(f"lost the Lease {self._settings.lease} to {holder}")
                self._held = False
                self._wake()
                return
            self._write(lease["metadata"]["resourceVersion"], self._spec())

    def _spec(self) -> Json:
        duration = max(1, math.ceil(self._times.lease))
        return {"holderIdentity": self._settings.identity, "leaseDurationSeconds": duration, "renewTime": now()}

    def _write(self, version: str, spec: Json) -> None:
        """Write to this version only: of two guards that try, one gets a Conflict."""
        sent = time.monotonic()
        consumed = list(self._consumed)
        annotations = self.report.annotations() | dict.fromkeys(consumed)
        metadata = {"resourceVersion": version, "annotations": annotations}
        lease = self._api.patch(self._lease, {"metadata": metadata, "spec": spec})
        self._version = lease["metadata"]["resourceVersion"]
        self._renewed = sent
        self._consumed.difference_update(consumed)
        self._take_annotations(lease)

    def _get(self) -> Json:
        lease = self._api.get(self._lease)
        self._take_annotations(lease)
        return lease

    def _take_annotations(self, lease: Json) -> None:
        """Take over the annotations, and wake the supervisor if a request changed."""
        found = lease["metadata"].get("annotations") or {}
        values = {name: value for name, value in found.items() if name.startswith(PREFIX)}
        before, self.annotations = self.annotations, values
        self._contact = time.monotonic()
        if any(before.get(name) != values.get(name) for name in REQUESTS):
            self._wake()

    def _announce(self) -> None:
        """Point clients here. Checked again from time to time: a late write of a previous holder may undo ours."""
        if time.monotonic() - self._announced < self._times.announce:
            return
        if self._announced == -math.inf or not self._is_announced(self._api.get(self._slice)):
            address = {"addresses": [self._settings.address], "conditions": {"ready": True}}
            places = self._settings.places
            numbers = {"slurmctld": places.port, "guard": places.http_port}
            ports = [{"name": name, "port": number, "protocol": "TCP"} for name, number in numbers.items()]
            self._api.patch(self._slice, {"endpoints": [address], "ports": ports})
        self._announced = time.monotonic()

    def _is_announced(self, found: Json) -> bool:
        return [each.get("addresses") for each in found.get("endpoints") or []] == [[self._settings.address]]

    def _release(self) -> None:
        try:
            self._write(self._version, {"holderIdentity": ""})
        except Conflict:
            lease = self._get()
            if (lease.get("spec") or {}).get("holderIdentity") == self._settings.identity:
                self._write(lease["metadata"]["resourceVersion"], {"holderIdentity": ""})
        self._held = False
