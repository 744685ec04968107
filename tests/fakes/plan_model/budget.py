"""How many nodes are away for an update, counted in the model world."""

from __future__ import annotations

from collections.abc import Collection

from tests.fakes.plan_model.world import World

from seltzer.plan.nodeset import pod_selection
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation


class Budget:
    """No more than `update.maxUnavailable` nodes are taken away for an update."""

    def __init__(self, world: World) -> None:
        self.world = world
        # Names of nodes that were taken away for an update and aren't back.
        self.away: set[str] = set()
        self._available: set[str] = set()
        # How many nodes there should be, with placement perNode.
        self._places = 0

    @property
    def target(self) -> int:
        wish = self.world.wish
        if wish.closing or wish.deleted is not None:
            return 0
        return self._places if wish.per_node else wish.replicas

    @property
    def _most(self) -> int:
        """How many an update may take away at once."""
        wish = self.world.wish
        return pod_selection.max_unavailable(wish.max_unavailable, self._places if wish.per_node else wish.replicas)

    def begin(self, seen: NodeSetObservation, decision: NodeSetDecision, alive: Collection[str]) -> None:
        self._places = decision.target
        staying = {pod.metadata.name for pod in decision.staying}
        self.away -= set(alive) - staying  # they are too many
        self._count_who_is_back(len(alive))
        pool = pod_selection.Candidates(decision.staying, seen.slurm.nodes or {}, {})
        self._available = {pod.metadata.name for pod in decision.staying if pool.available(pod)}

    def take(self, name: str) -> None:
        """A node that takes jobs is taken away for an update. Who isn't available, or wasn't when the operator looked,
        isn't taken from anybody."""
        if name in self.away or name not in self._available or not self._is_available(name):
            return
        self.away.add(name)
        budget = self._most
        assert len(self.away) <= budget, f"{sorted(self.away)} are away for an update, and only {budget} may be"
        self._available.discard(name)
        unavailable = self.target - len(self._available)
        assert unavailable <= budget, f"{name} is taken away, so that {unavailable} are, and only {budget} may be"

    def _count_who_is_back(self, alive: int) -> None:
        """Who is resumed, and whose successor is available."""
        world = self.world
        for name in sorted(self.away):
            if self._is_alive(name):
                record, pod = world.records.get(name), world.pods[name]
                drained = record is not None and record.drained
                away = drained if pod.template != world.template else not self._is_available(name)
                if not away:
                    self.away.discard(name)
        lost = [name for name in sorted(self.away) if not self._is_alive(name)]
        self.away -= set(lost[max(0, self.target - alive) :])

    def _is_alive(self, name: str) -> bool:
        pod = self.world.pods.get(name)
        return pod is not None and pod.alive and not self.world.is_lost(pod)

    def _is_available(self, name: str) -> bool:
        pod, record = self.world.pods.get(name), self.world.records.get(name)
        if pod is None or record is None or not self._is_alive(name):
            return False
        return pod.shown == "ready" and not record.drained and not record.down
