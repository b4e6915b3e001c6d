"""All replica groups of the manager: their epochs, who is placed in them, how they are repaired (Rhino 4.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from replication_manager.core import events as ev
from replication_manager.core import groups as rules
from replication_manager.core import placement
from replication_manager.core.membership import Membership, WorkerRecord, WorkerState
from rhino.errors import TooFewWorkersError
from rhino.ids import NO_EPOCH, DiskState, Epoch, GroupId, JobSettings, Member, ReplicaGroup, Worker


class Chains:
    """`resting` names workers that get no further groups for the time being."""

    def __init__(
        self,
        generation: int,
        membership: Membership,
        groups: Iterable[ReplicaGroup],
        resting: Callable[[], Collection[str]],
    ) -> None:
        self.generation = generation
        self.groups: dict[GroupId, ReplicaGroup] = {group.group: group for group in groups}
        self._membership = membership
        self._resting = resting
        self.draining: set[str] = set()  # workers that are to be emptied: nothing new is placed there
        self._counter = 0
        self._settings = {group.group.job: group.settings for group in self.groups.values()}
        self._kindred: dict[tuple[str, int], list[GroupId]] = {}  # groups of one partition of a job
        for group_id in self.groups:
            self._kindred.setdefault((group_id.job, group_id.partition), []).append(group_id)
        self._bins: list[placement.Bin] | None = None  # for the event at hand, as are the sizes
        self._sizes: Mapping[object, int] = {}

    def next_event(self) -> None:
        """What is known of loads may have changed."""
        self._bins = None

    # ---------------------------------------------------------------- epochs

    @property
    def newest_epoch(self) -> Epoch:
        return Epoch(self.generation, self._counter)

    def next_epoch(self) -> Epoch:
        self._counter += 1
        return self.newest_epoch

    def exceed(self, seen: Epoch) -> list[ev.Effect]:
        """Goes beyond an epoch that a sidecar has seen."""
        if seen <= self.newest_epoch:
            return []
        self.generation, self._counter = seen.generation + 1, 0
        return [ev.PersistGeneration(self.generation)]

    # ---------------------------------------------------------------- changes

    def renew(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """These members, under a new epoch."""
        new = rules.renewed(group, self.next_epoch(), rules.respread(group, members))
        if new.group not in self.groups:
            self._kindred.setdefault((new.group.job, new.group.partition), []).append(new.group)
            self._settings.setdefault(new.group.job, new.settings)
        self.groups[new.group] = new
        return [ev.PersistGroup(new), ev.PublishGroup(new)]

    def drop(self, group: GroupId) -> None:
        del self.groups[group]
        self._kindred[group.job, group.partition].remove(group)

    def forget_settings(self, job: str) -> None:
        self._settings.pop(job, None)

    def mend(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """Gives the group these members, less the lost ones, plus replacements (Rhino 4.2.3)."""
        records = self._membership.records
        staying = rules.settled(
            group.settings,
            members,
            self._membership.is_present,
            lambda worker: group.group in records[worker.worker_id].doubted,
        )
        members = self._filled(group, staying)
        members = rules.without_draining(group.settings, members, self.draining, self._membership.is_present)
        return self.renew(group, members) if members != group.members else []

    def mend_all(self) -> list[ev.Effect]:
        """Those with the fewest whole members first."""
        effects: list[ev.Effect] = []
        for group in self.fewest_whole_first():
            effects += self.mend(group, group.members)
        return effects

    def doubt(self, record: WorkerRecord) -> list[ev.Effect]:
        """Its process has ended: commits are not to wait for it. It stays where it is: it may be back in a moment."""
        effects: list[ev.Effect] = []
        for group in self.fewest_whole_first():
            members = rules.doubted(group, record.worker.worker_id, self._membership.is_live)
            if members != group.members:
                record.doubted.add(group.group)
                effects += self.renew(group, members)
        return effects

    def fewest_whole_first(self) -> list[ReplicaGroup]:
        return sorted(self.groups.values(), key=lambda g: sum(m.whole for m in g.members))

    def one_more(self, group: ReplicaGroup) -> list[ev.Effect]:
        """A member beyond the chain's length, not whole yet; nothing when there is nobody."""
        taken = [m.worker for m in group.members]
        added = self._chosen(group.group, 1, taken, self._chain_of_kin(group.group, taken[0]))
        return self.renew(group, (*group.members, *(Member(worker, False) for worker in added))) if added else []

    def owned_by(self, group: ReplicaGroup, worker_id: str) -> rules.Members:
        """Members with another owner; PreconditionError. Draining ones leave when they can be spared."""
        present = self._membership.is_present
        members = rules.owned_by(group, worker_id, present, self.draining)
        return rules.without_draining(group.settings, members, self.draining, present)

    def set_draining(self, worker_id: str, draining: bool) -> list[ev.Effect]:
        """Marks a worker, or ends that; `mend_all` acts on it."""
        (self.draining.add if draining else self.draining.discard)(worker_id)
        return [ev.PersistDraining(worker_id, draining)]

    def start(self, group: GroupId, owner: Worker, asked: JobSettings) -> list[ev.Effect]:
        """A new group; TooFewWorkersError."""
        settings = self._settings.get(group.job, asked)
        owner = self._first_owner(group, owner)
        members = self._first_chain(group, owner, settings)
        return self.renew(ReplicaGroup(group, NO_EPOCH, members, 1, settings), members)

    # ---------------------------------------------------------------- placement

    def sizes(self) -> Mapping[object, int]:
        """Bytes of each group: the most that any present worker stores of it."""
        found: dict[object, int] = {}
        for record in self._membership.records.values():
            for report in record.reports.values() if record.present else ():
                found[report.group] = max(found.get(report.group, 0), report.stored_bytes)
        return found

    def _chosen(
        self,
        group: GroupId,
        count: int,
        taken: list[Worker],
        preferred: Sequence[str],
        holders: Collection[str] = (),
    ) -> list[Worker]:
        """`holders`: have the files already, so that a full disk keeps nobody out."""
        if self._bins is None:
            self._sizes = self.sizes()
            records = self._membership.records.values()
            doubtful = {r.worker.worker_id for r in records if r.state is WorkerState.SUSPECT}
            closed = {r.worker.worker_id for r in records if r.disk is not DiskState.OK} | set(self._resting())
            closed |= self.draining
            bins = placement.loads(self._membership.present(), self.groups.values(), self._sizes)
            self._bins = [
                replace(b, doubtful=b.worker.worker_id in doubtful, closed=b.worker.worker_id in closed) for b in bins
            ]
        chosen = placement.choose(self._bins, count, taken, preferred, holders)
        self._bins = placement.filled(self._bins, chosen, self._sizes.get(group, 0))
        return chosen

    def _filled(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """Members with replacements, not whole yet, up to r secondaries; none while nobody can serve them."""
        staying = sum(m.worker.worker_id not in self.draining for m in members)
        lacking = group.settings.replication_factor + 1 - staying
        if lacking <= 0 or not any(m.whole and self._membership.is_present(m.worker) for m in members):
            return members
        taken = [m.worker for m in members]
        added = self._chosen(group.group, lacking, taken, self._chain_of_kin(group.group, taken[0]))
        return (*members, *(Member(worker, False) for worker in added))

    def _chain_of_kin(self, group: GroupId, owner: Worker) -> list[str]:
        """Secondaries of another operator of the same partition and owner: Spark may run both in one task."""
        kindred = (self.groups[g] for g in self._kindred.get((group.job, group.partition), ()) if g != group)
        chains = ([m.worker.worker_id for m in k.members[1:]] for k in kindred if k.owner == owner)
        return max(chains, key=len, default=[])

    def _first_owner(self, group: GroupId, asking: Worker) -> Worker:
        """Who asks, unless that worker is being emptied and another one has room: then it writes as a guest."""
        if asking.worker_id not in self.draining:
            return asking
        kin = (self.groups[g].owner for g in self._kindred.get((group.job, group.partition), ()))
        return next(iter(self._chosen(group, 1, [asking], [owner.worker_id for owner in kin])), asking)

    def _first_chain(self, group: GroupId, owner: Worker, settings: JobSettings) -> rules.Members:
        """All whole, for there is nothing to hold yet; unless workers know the group from a journal that was lost."""
        reports = {
            r.worker.worker_id: r.reports[group]
            for r in self._membership.records.values()
            if r.present and group in r.reports
        }
        known = {wid: report for wid, report in reports.items() if report.epoch > NO_EPOCH}
        newest = max((report.epoch for report in known.values()), default=NO_EPOCH)
        whole = [wid for wid, report in known.items() if report.whole and report.epoch == newest]
        preferred = list(dict.fromkeys((*whole, *known))) if known else self._chain_of_kin(group, owner)
        chosen = self._chosen(group, settings.replication_factor, [owner], preferred, known)
        if len(chosen) < settings.replication_factor:
            present = [record for record in self._membership.records.values() if record.present]
            closed = [f"{r.worker.worker_id} ({r.disk.value} disk)" for r in present if r.disk is not DiskState.OK]
            closed += [f"{worker_id} (lags)" for worker_id in sorted(self._resting())]
            raise TooFewWorkersError(
                f"replication factor {settings.replication_factor} needs {settings.replication_factor + 1} workers, "
                f"{len(present)} are live{', not taking files: ' if closed else ''}{', '.join(closed)}: start more "
                "sidecars, free disk space or lower spark.rhino.replicationFactor"
            )
        chain = (owner, *chosen)
        if not known:
            return rules.held_by(chain, [worker.worker_id for worker in chain])
        return rules.settled(settings, rules.held_by(chain, whole), self._membership.is_present)
