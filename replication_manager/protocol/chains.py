"""All replica groups of the manager: epochs, placement and repair (Rhino 4.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol import groups as rules
from replication_manager.protocol import placement
from replication_manager.protocol.impaired import Impaired
from replication_manager.protocol.membership import Membership, WorkerRecord, WorkerState
from rhino_core.errors import TooFewWorkersError
from rhino_core.ids import COUNT_BITS, NO_EPOCH, DiskState, Epoch, GroupId, JobSettings, Member, ReplicaGroup, Worker


class Chains:
    """Changes groups under new epochs and chooses their members.

    `resting` returns the workers that get no further groups for now. `sources` returns the workers that joined a group
    only because they have versions that its members lack. `life` is described at `ReplicationMachine`.
    """

    def __init__(
        self,
        generation: int,
        life: int,
        membership: Membership,
        groups: Iterable[ReplicaGroup],
        resting: Callable[[], Collection[str]],
        impaired: Impaired,
        sources: Callable[[GroupId], Collection[str]] = lambda group: (),
    ) -> None:
        self.generation = generation
        self.groups: dict[GroupId, ReplicaGroup] = {group.group: group for group in groups}
        self._membership = membership
        self._resting = resting
        self._impaired = impaired
        self._sources = sources
        self._now = 0.0
        self.draining: set[str] = set()  # workers being drained: nothing new is placed there
        self._counter = self._first = life << COUNT_BITS
        self.near: dict[str, ev.ExecutorsNamed] = {}  # by job: where its executors are
        self._settings = {group.group.job: group.settings for group in self.groups.values()}
        self._colocated: dict[tuple[str, int], list[GroupId]] = {}  # groups by (job, partition)
        for group_id in self.groups:
            self._colocated.setdefault((group_id.job, group_id.partition), []).append(group_id)
        self._bins: list[placement.Bin] | None = None  # cached for the current event, like the sizes
        self._sizes: Mapping[object, int] = {}

    def next_event(self, now: float) -> None:
        """Drops the cached loads of the previous event, which may have changed."""
        self._now = now
        self._bins = None

    # ---------------------------------------------------------------- epochs

    @property
    def newest_epoch(self) -> Epoch:
        return Epoch(self.generation, self._counter)

    def next_epoch(self) -> Epoch:
        self._counter += 1
        return self.newest_epoch

    def exceed(self, seen: Epoch) -> list[ev.Effect]:
        """Raises the generation above an epoch that a sidecar has seen."""
        if seen <= self.newest_epoch:
            return []
        self.generation, self._counter = seen.generation + 1, self._first
        return [ev.PersistGeneration(self.generation)]

    # ---------------------------------------------------------------- changes

    def renew(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """Gives the group these members under a new epoch."""
        new = rules.renewed(group, self.next_epoch(), rules.respread(group, members))
        if new.group not in self.groups:
            self._colocated.setdefault((new.group.job, new.group.partition), []).append(new.group)
            self._settings.setdefault(new.group.job, new.settings)
        self.groups[new.group] = new
        return [ev.PersistGroup(new), ev.PublishGroup(new)]

    def settings_of(self, job: str) -> JobSettings | None:
        """Settings for new groups of the job. None: the job has had no group yet."""
        return self._settings.get(job)

    def remember(self, job: str, settings: JobSettings) -> None:
        """Uses these settings for further groups of the job."""
        self._settings[job] = settings

    def resettle(self, group: ReplicaGroup, settings: JobSettings, surplus: Collection[str]) -> list[ev.Effect]:
        """Applies other settings under a new epoch. Members are added, or leave as `rules.shortened` allows."""
        changed = replace(group, settings=settings)
        return self.renew(changed, self._shortened(changed, self._filled(changed, group.members), surplus))

    def shorten(self, group: ReplicaGroup, surplus: Collection[str]) -> list[ev.Effect]:
        """Removes surplus members as far as that is safe now."""
        members = self._shortened(group, group.members, surplus)
        return self.renew(group, members) if members != group.members else []

    def too_long(self, group: ReplicaGroup) -> bool:
        """Whether more members stay than the settings ask for."""
        staying = sum(m.worker.worker_id not in self.draining for m in group.members)
        return staying > group.settings.replication_factor + 1

    def _shortened(self, group: ReplicaGroup, members: rules.Members, surplus: Collection[str]) -> rules.Members:
        return rules.shortened(group.settings, members, surplus, self.draining, self._membership.is_present)

    def drop(self, group: GroupId) -> None:
        del self.groups[group]
        partition = group.job, group.partition
        self._colocated[partition].remove(group)
        if not self._colocated[partition]:
            del self._colocated[partition]

    def forget_settings(self, job: str) -> None:
        self._settings.pop(job, None)
        self.near.pop(job, None)

    def mend(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """Gives the group these members without the lost ones, and adds replacements (Rhino 4.2.3)."""
        records, owner = self._membership.records, group.owner.worker_id
        members = rules.without_impaired(
            group.settings,
            members,
            self._impaired.ids(),
            self.draining,
            lambda worker: self._membership.is_heard(worker, self._now),
        )
        staying = rules.settled(
            group.settings,
            members,
            self._membership.is_present,
            lambda worker: worker.worker_id == owner and group.group in records[owner].suspected,
        )
        members = self._filled(group, staying)
        members = self._without_draining(group, members)
        return self.renew(group, members) if members != group.members else []

    def _without_draining(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """Lets draining members leave.

        A source stays until the others have its versions, even if they report to be whole.
        """
        leaving = self.draining.difference(self._sources(group.group))
        return rules.without_draining(group.settings, members, leaving, self._membership.is_present)

    def mend_all(self) -> list[ev.Effect]:
        """Mends all groups. Groups with the fewest whole members come first."""
        effects: list[ev.Effect] = []
        for group in self.fewest_whole_first():
            effects += self.mend(group, group.members)
        return effects

    def suspect(self, record: WorkerRecord) -> list[ev.Effect]:
        """Stops commits from waiting for a worker whose process has ended.

        The worker keeps its place in the chain, because it may be back in a moment.
        """
        effects: list[ev.Effect] = []
        for group in self.fewest_whole_first():
            members = rules.suspected(group, record.worker.worker_id, self._membership.is_live)
            if members != group.members:
                record.suspected.add(group.group)
                effects += self.renew(group, members)
        return effects

    def reconsider(self, worker_id: str) -> list[ev.Effect]:
        """Mends the groups of a worker that became impaired or has recovered.

        A recovered worker catches up under a new epoch before it counts. Its reports under the present epoch may be
        older than the files that it missed.
        """
        effects: list[ev.Effect] = []
        for group in self.fewest_whole_first():
            if group.member(worker_id) is None:
                continue
            changed = self.mend(group, group.members)
            member = self.groups[group.group].member(worker_id)
            if not changed and worker_id not in self._impaired.ids() and member is not None and not member.whole:
                changed = self.renew(group, group.members)
            effects += changed
        return effects

    def fewest_whole_first(self) -> list[ReplicaGroup]:
        return sorted(self.groups.values(), key=lambda g: sum(m.whole for m in g.members))

    def one_more(self, group: ReplicaGroup) -> list[ev.Effect]:
        """Adds one member beyond the chain's length, not whole yet. Changes nothing if no worker is eligible."""
        taken = [m.worker for m in group.members]
        added = self._chosen(group.group, 1, taken, self._chain_of_kin(group.group, taken[0]))
        return self.renew(group, (*group.members, *(Member(worker, False) for worker in added))) if added else []

    def join(self, group: ReplicaGroup, worker: Worker) -> list[ev.Effect]:
        """Adds this worker beyond the chain's length, not whole yet.

        Changes nothing if the worker is not eligible, or if no whole member is present from which it could catch up.
        """
        served = any(m.whole and self._membership.is_present(m.worker) for m in group.members)
        taken = [m.worker for m in group.members]
        if not served or self._chosen(group.group, 1, taken, [worker.worker_id]) != [worker]:
            return []
        return self.renew(group, (*group.members, Member(worker, False)))

    def owned_by(self, group: ReplicaGroup, worker_id: str) -> rules.Members:
        """Members with another owner. Draining members leave as soon as the group can spare them.

        Raises PreconditionError.
        """
        present = self._membership.is_present
        return self._without_draining(group, rules.owned_by(group, worker_id, present, self.draining))

    def set_draining(self, worker_id: str, draining: bool) -> list[ev.Effect]:
        """Marks a worker as draining, or removes the mark. `mend_all` acts on it."""
        (self.draining.add if draining else self.draining.discard)(worker_id)
        return [ev.PersistDraining(worker_id, draining)]

    def start(self, group: GroupId, owner: Worker, asked: JobSettings) -> list[ev.Effect]:
        """Creates a group. Raises TooFewWorkersError."""
        settings = self._settings.get(group.job, asked)
        owner = self._first_owner(group, owner)
        members = self._first_chain(group, owner, settings)
        return self.renew(ReplicaGroup(group, NO_EPOCH, members, 1, settings), members)

    # ---------------------------------------------------------------- placement

    def sizes(self) -> Mapping[object, int]:
        """Bytes of each group: the maximum that any present worker stores of it."""
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
        """Chooses up to `count` workers. `holders` have the files already, so a full disk does not exclude them."""
        if self._bins is None:
            self._sizes = self.sizes()
            records = self._membership.records.values()
            suspected = {r.worker.worker_id for r in records if r.state is WorkerState.SUSPECT}
            closed = {r.worker.worker_id for r in records if r.disk is not DiskState.OK} | set(self._resting())
            closed |= set(self._impaired.mute())
            closed |= self.draining
            bins = placement.loads(self._membership.present(), self.groups.values(), self._sizes)
            self._bins = [
                replace(b, suspected=b.worker.worker_id in suspected, closed=b.worker.worker_id in closed) for b in bins
            ]
        chosen = placement.choose(self._bins, count, taken, preferred, holders, self._near(group.job))
        self._bins = placement.filled(self._bins, chosen, self._sizes.get(group, 0))
        return chosen

    def _near(self, job: str) -> set[str]:
        """Ids of present workers that have executors of the job."""
        named = self.near.get(job)
        if named is None:
            return set()
        present = self._membership.present()
        return {w.worker_id for w in present if w.worker_id in named.workers or w.host in named.hosts}

    def _filled(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """Members plus replacements, not whole yet, up to r secondaries.

        Adds no one while no whole member is present: a replacement could not catch up.
        """
        staying = sum(m.worker.worker_id not in self.draining for m in members)
        lacking = group.settings.replication_factor + 1 - staying
        if lacking <= 0 or not any(m.whole and self._membership.is_present(m.worker) for m in members):
            return members
        taken = [m.worker for m in members]
        preferred = [*self._keepers(group.group), *self._chain_of_kin(group.group, taken[0])]
        added = self._chosen(group.group, lacking, taken, preferred)
        return (*members, *(Member(worker, False) for worker in added))

    def _keepers(self, group: GroupId) -> list[str]:
        """Workers that store most of the group, as members or not. They have little left to copy."""
        records = [r for r in self._membership.records.values() if r.present and group in r.reports]
        stored = {r.worker.worker_id: r.reports[group].stored_bytes for r in records}
        most = max(stored.values(), default=0)
        return sorted((w for w, size in stored.items() if 0 < most < 2 * size), key=lambda w: (-stored[w], w))

    def swap(self, group: ReplicaGroup, worker: Worker) -> list[ev.Effect]:
        """Puts a worker that stores most of the group in the place of a member that has begun to copy it."""
        *staying, last = group.members
        eligible = self._chosen(group.group, 1, [m.worker for m in staying], [worker.worker_id])
        if eligible != [worker] or worker.worker_id not in self._keepers(group.group):
            return []
        # otherwise it is not yet known what that member has
        begun = self._membership.is_live(last.worker) and not last.whole
        if not begun or last.worker.worker_id in self._keepers(group.group):
            return []
        return self.mend(group, (*staying, Member(worker, False)))

    def _chain_of_kin(self, group: GroupId, owner: Worker) -> list[str]:
        """Secondaries of a related group: another operator of the same partition with the same owner.

        Spark may run both operators in one task.
        """
        colocated = (self.groups[g] for g in self._colocated.get((group.job, group.partition), ()) if g != group)
        chains = ([m.worker.worker_id for m in k.members[1:]] for k in colocated if k.owner == owner)
        return max(chains, key=len, default=[])

    def _first_owner(self, group: GroupId, asking: Worker) -> Worker:
        """The owner of a new group: the asking worker, unless it is draining and another one is eligible.

        In that case the asking worker writes as a guest.
        """
        if asking.worker_id not in self.draining:
            return asking
        kin = (self.groups[g].owner for g in self._colocated.get((group.job, group.partition), ()))
        return next(iter(self._chosen(group, 1, [asking], [owner.worker_id for owner in kin])), asking)

    def _first_chain(self, group: GroupId, owner: Worker, settings: JobSettings) -> rules.Members:
        """Members of a new group, all of them whole: there is no state yet.

        If workers report the group from a journal that was lost, only those that are whole under its newest epoch count
        as whole.
        """
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
