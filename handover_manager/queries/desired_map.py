"""The map of a query: the desired worker of each virtual node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from handover_manager.plan.locations import LocationMap, choose_worker, make_locations, rank_workers
from handover_manager.queries.fallbacks import Fallbacks
from handover_manager.view import ClusterView, TaskGroup
from rhino_core.ids import VirtualNode
from rhino_model.handovers import groups_of


@dataclass(slots=True)
class DesiredMap:
    """The desired worker of each virtual node, under a configuration epoch. It rises with each change.

    `nodes` are the virtual nodes with their operators. `node_of` finds the virtual node of an (operator, partition).
    Both are computed once for each plan of the query: there may be 100 000 virtual nodes, and every batch needs them.
    `pinned` has the workers set by markers, until they own the groups. `made_from` is the revision of the groups behind
    the map. None: it must be made again. `concerns` are the workers it depends on, and `workers` the desired ones.
    `edition` rises whenever the map is made again, changed or not.
    """

    job: str
    task_groups: tuple[TaskGroup, ...] = ()
    configuration_epoch: int = 0
    desired: dict[VirtualNode, str] = field(default_factory=dict)
    pinned: dict[VirtualNode, str] = field(default_factory=dict)
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    made_from: int | None = None
    concerns: frozenset[str] = frozenset()
    edition: int = 0
    workers: frozenset[str] = field(init=False)
    nodes: Mapping[VirtualNode, tuple[int, ...]] = field(init=False)
    node_of: Mapping[tuple[int, int], VirtualNode] = field(init=False)

    def __post_init__(self) -> None:
        self.workers = frozenset(self.desired.values())
        self._find_nodes()

    def take_plan(self, task_groups: tuple[TaskGroup, ...]) -> None:
        """Adopts a new plan. Markers of virtual nodes missing in the new plan are dropped."""
        self.task_groups = task_groups
        self._find_nodes()
        self.pinned = {node: worker for node, worker in self.pinned.items() if node in self.nodes}

    def _find_nodes(self) -> None:
        self.nodes = {
            VirtualNode(self.job, group.task_group, partition): group.operators
            for group in self.task_groups
            for partition in range(group.partitions)
        }
        self.node_of = {(o, node.partition): node for node, operators in self.nodes.items() for o in operators}

    def choose(self, view: ClusterView) -> bool:
        """Updates the map from `view`. Returns whether it has changed. A change begins a new configuration epoch.

        A virtual node keeps its worker while its groups are unknown.
        """
        chosen = {node: worker for node, worker in self.desired.items() if node in self.nodes}
        for node, operators in self.nodes.items():
            standing = self.pinned.get(node) or self.fallbacks.of(node, groups_of(node, operators), view)
            worker = choose_worker(view, node, operators, standing)
            if worker is not None:
                chosen[node] = worker
        self.edition += 1
        self.concerns = self._concerned(view, chosen)
        if chosen == self.desired:
            return False
        self.desired, self.workers = chosen, frozenset(chosen.values())
        self.configuration_epoch += 1
        return True

    def _concerned(self, view: ClusterView, chosen: Mapping[VirtualNode, str]) -> frozenset[str]:
        groups = (group for node in self.nodes.items() for group in groups_of(*node))
        members = (member.worker.worker_id for seen in view.known(groups) for member in seen.group.members)
        return frozenset({*members, *chosen.values(), *self.pinned.values(), *self.fallbacks.workers()})

    def pin(self, workers: Mapping[VirtualNode, str], view: ClusterView) -> None:
        """Begins a configuration epoch with these workers for these virtual nodes."""
        self.pinned.update(workers)
        if not self.choose(view):
            self.configuration_epoch += 1

    def unpin(self, nodes: Iterable[VirtualNode], worker: str, view: ClusterView) -> bool:
        """Ends `pin` where it has set `worker`. Returns whether the map has changed."""
        for node in nodes:
            if self.pinned.get(node) == worker:
                del self.pinned[node]
        return self.choose(view)

    def ran(self, nodes: Iterable[VirtualNode], missed: Collection[VirtualNode]) -> None:
        """Records that a batch ran these virtual nodes, the missed ones elsewhere than desired. May end fallbacks."""
        ended = [node for node in nodes if self.fallbacks.ran(node, missed=node in missed)]
        if ended:
            self.made_from = None

    def locations(self, view: ClusterView) -> LocationMap:
        """The map for the driver. Fallback placement follows the newest map."""
        ranked = rank_workers(view, self.nodes, self.desired)
        self.fallbacks.sent(ranked, self.pinned)
        return make_locations(view, ranked)

    def check_invariants(self) -> None:
        assert all(self.desired.get(n) == w for n, w in self.pinned.items() if n in self.nodes), self
        assert bool(self.desired) <= (self.configuration_epoch > 0), self
