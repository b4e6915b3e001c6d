"""Choice of the workers for a group (Rhino 4.2.2, phase 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.group_table import GroupTable
from replication_manager.protocol.placement import candidates as placement
from replication_manager.protocol.placement.candidates import Wish
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.placement.lagging import Laggards
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerState
from rhino_core.errors import TooFewWorkersError
from rhino_core.ids import NO_EPOCH, DiskState, GroupId, JobSettings, Member, ReplicaGroup, Worker
from rhino_core.planning.copysets import Sets, sets_of_a_worker


class Placing:
    """Chooses workers from the manager's knowledge of them. It changes no group; `placement` has the order of criteria.

    `scatter_width`: over how many others the copies of a worker are spread; 0: over all. `now`: monotonic time of the
    current event.
    """

    def __init__(
        self, table: GroupTable, membership: Membership, laggards: Laggards, impaired: Impaired, scatter_width: int
    ) -> None:
        self._table = table
        self._membership = membership
        self._laggards = laggards
        self._impaired = impaired
        self._scatter_width = scatter_width
        self._executors: dict[str, ev.ExecutorsNamed] = {}  # by job
        self.now = 0.0
        self._bins: dict[str, placement.Bin] | None = None  # cached for the current event

    def next_event(self, now: float) -> None:
        """Drops the cache of the previous event."""
        self.now = now
        self._bins = None

    def name_executors(self, event: ev.ExecutorsNamed) -> None:
        """Prefers workers near these executors from now on. Moves no copy. Not journalled."""
        self._executors[event.job] = event

    def forget_job(self, job: str) -> None:
        self._executors.pop(job, None)

    def choose(self, group: GroupId, count: int, taken: list[Worker], wish: Wish) -> list[Worker]:
        """Chooses up to `count` workers outside `taken`. The executors of the wish are filled in here."""
        bins = self._bins_now()
        wish = replace(
            wish,
            near_executors=self._near_executors(group.job, bins),
            leaving={*wish.leaving, *self._membership.draining},
        )
        sets = self._sets(bins, wish.members)
        return placement.choose(bins.values(), count, self._membership.known_places(taken), wish, sets)

    def _sets(self, bins: Mapping[str, placement.Bin], members: int) -> Sets | None:
        if not self._scatter_width or members < 2:
            return None
        most = sets_of_a_worker(self._scatter_width, members)
        return Sets(self._table.copysets, members, most, lambda worker: worker in bins and not bins[worker].closed)

    def _bins_now(self) -> Mapping[str, placement.Bin]:
        """The present workers, with their bytes now."""
        load_bytes = self._table.load_bytes
        if self._bins is None:
            closed = self._laggards.in_cooldown(self.now) | set(self._impaired.mute()) | self._membership.draining
            self._bins = {
                worker_id: placement.Bin(
                    record.worker,
                    0,
                    suspected=record.state is WorkerState.SUSPECT,
                    closed=worker_id in closed or record.disk is not DiskState.OK,
                )
                for worker_id, record in self._membership.records.items()
                if record.present
            }
        for worker_id, found in self._bins.items():
            found.load_bytes = load_bytes.get(worker_id, 0)
        return self._bins

    def _near_executors(self, job: str, bins: Mapping[str, placement.Bin]) -> set[str]:
        """Ids of present workers with executors of the job."""
        named = self._executors.get(job)
        if named is None:
            return set()
        near = {worker_id for worker_id in named.workers if worker_id in bins}
        if named.hosts:
            near.update(worker_id for worker_id, b in bins.items() if b.worker.host in named.hosts)
        return near

    def may_run(self, job: str, worker_id: str, *, unnamed: bool) -> bool:
        """Whether executors of the job are near this worker. `unnamed`: the answer while no driver has named any."""
        record, named = self._membership.records.get(worker_id), self._executors.get(job)
        if record is None or named is None:
            return record is not None and unnamed
        return worker_id in named.workers or record.worker.host in named.hosts

    # ---------------------------------------------------------------- groups that exist

    def filled(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """These members of the group, plus replacements up to r secondaries. A replacement is not whole yet.

        Adds none while no whole member is present: a replacement could not catch up.
        """
        staying = sum(m.worker.worker_id not in self._membership.draining for m in members)
        lacking = group.settings.replication_factor + 1 - staying
        if lacking <= 0 or not any(m.whole and self._membership.is_present(m.worker) for m in members):
            return members
        taken = [m.worker for m in members]
        preferred = [*self.keepers(group.group), *self.related_chain(group.group, taken[0])]
        added = self.choose(
            group.group, lacking, taken, Wish(preferred=preferred, members=group.settings.replication_factor + 1)
        )
        return (*members, *(Member(worker, False) for worker in added))

    def keepers(self, group: GroupId) -> list[str]:
        """Ids of workers that store most of the group, as members or not. They have little left to copy."""
        records = [r for r in self._membership.with_report(group) if r.present]
        stored = {r.worker.worker_id: r.reports[group].stored_bytes for r in records}
        most = max(stored.values(), default=0)
        return sorted((w for w, size in stored.items() if 0 < most < 2 * size), key=lambda w: (-stored[w], w))

    def related_chain(self, group: GroupId, owner: Worker) -> list[str]:
        """Ids of the secondaries of a related group with the same owner."""
        chains = ([m.worker.worker_id for m in g.members[1:]] for g in self._table.related(group) if g.owner == owner)
        return max(chains, key=len, default=[])

    # ---------------------------------------------------------------- new groups

    def _branched_chain(self, branch_of: GroupId | None) -> list[str]:
        """Ids of the members of the group `branch_of`; whole ones come first."""
        source = self._table.by_id.get(branch_of) if branch_of else None
        members = sorted(source.members, key=lambda member: not member.whole) if source else []
        return [member.worker.worker_id for member in members]

    def first_members(
        self, group: GroupId, asking: Worker, settings: JobSettings, branch_of: GroupId | None = None
    ) -> rules.Members:
        """Members of a new group for the worker `asking`. Raises TooFewWorkersError.

        `branch_of`: its members are preferred, because they have the files already. All of them are whole, because
        there is no state yet. If workers report the group from a lost journal, only those whole under its newest epoch
        count as whole.
        """
        owner = self._first_owner(group, asking)
        found = self._membership.with_report(group)
        reports = {r.worker.worker_id: r.reports[group] for r in found if r.present}
        known = {worker_id: report for worker_id, report in reports.items() if report.epoch > NO_EPOCH}
        newest = max((report.epoch for report in known.values()), default=NO_EPOCH)
        whole = [worker_id for worker_id, report in known.items() if report.whole and report.epoch == newest]
        if known:
            wish = Wish(first=list(dict.fromkeys((*whole, *known))), holders=known)
        else:
            preferred = self._branched_chain(branch_of) or self.related_chain(group, owner)
            wish = Wish(preferred=preferred, members=settings.replication_factor + 1)
        chosen = self.choose(group, settings.replication_factor, [owner], wish)
        if len(chosen) < settings.replication_factor:
            raise self._too_few_workers(settings)
        chain = (owner, *chosen)
        if not known:
            return rules.held_by(chain, [worker.worker_id for worker in chain])
        return rules.settled(rules.held_by(chain, whole), self._membership.is_present)

    def _first_owner(self, group: GroupId, asking: Worker) -> Worker:
        """The owner of a new group: the asking worker, unless it is draining and another one is eligible.

        The asking worker then writes as a guest.
        """
        if asking.worker_id not in self._membership.draining:
            return asking
        owners = [related.owner.worker_id for related in self._table.related(group)]
        return next(iter(self.choose(group, 1, [asking], Wish(first=owners))), asking)

    def _too_few_workers(self, settings: JobSettings) -> TooFewWorkersError:
        present = [record for record in self._membership.records.values() if record.present]
        closed = [f"{r.worker.worker_id} ({r.disk.value} disk)" for r in present if r.disk is not DiskState.OK]
        closed += [f"{worker_id} (lags)" for worker_id in sorted(self._laggards.in_cooldown(self.now))]
        return TooFewWorkersError(
            f"replication factor {settings.replication_factor} needs {settings.replication_factor + 1} workers, "
            f"{len(present)} are live{', not taking files: ' if closed else ''}{', '.join(closed)}: start more "
            "sidecars, free disk space or lower spark.rhino.replicationFactor"
        )
