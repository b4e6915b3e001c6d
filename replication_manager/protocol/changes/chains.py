"""How the replica groups of the manager change: each change makes a new epoch (Rhino 4.2.2, 4.2.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.epochs import Epochs
from replication_manager.protocol.groups.group_table import GroupTable
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.groups.waiting import Waiting
from replication_manager.protocol.placement.candidates import Wish
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.placement.placing import Placing
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerRecord
from rhino_core.ids import NO_EPOCH, Epoch, GroupId, JobSettings, Member, ReplicaGroup, Worker

REPAIRS_AT_ONCE = 200  # groups that are repaired in one event: some tenths of a second, if all need another worker
REPAIR_PAUSE_S = 0.002  # between two such events


class Chains:
    """Changes groups under new epochs.

    `fences`: of the jobs that have ended for good. A fence lies above every epoch of the job's groups.
    """

    def __init__(
        self,
        table: GroupTable,
        epochs: Epochs,
        placing: Placing,
        membership: Membership,
        impaired: Impaired,
        returned: Returned,
        fences: Mapping[str, Epoch],
    ) -> None:
        self._table = table
        self.epochs = epochs
        self._placing = placing
        self._membership = membership
        self._impaired = impaired
        self._returned = returned
        self.fences = dict(fences)
        self._now = 0.0
        self._waiting = Waiting(table.short())
        self._settings = {group.group.job: group.settings for group in self.groups.values()}

    def next_event(self, now: float) -> None:
        self._now = now
        self._placing.next_event(now)

    @property
    def groups(self) -> Mapping[GroupId, ReplicaGroup]:
        return self._table.by_id

    def member_of(self, worker_id: str) -> Collection[GroupId]:
        """Ids of the groups with the worker as a member."""
        return self._table.of_worker(worker_id)

    def of_worker(self, worker_id: str) -> list[ReplicaGroup]:
        """Groups with the worker as a member, by rising number of whole members."""
        return self._table.fewest_whole_first(self._table.of_worker(worker_id))

    def of_job(self, job: str) -> list[ReplicaGroup]:
        """Groups of the job, those with the fewest whole members first."""
        return self._table.fewest_whole_first(self._table.of_job(job))

    def start(
        self, group: GroupId, asking: Worker, asked: JobSettings, branch_of: GroupId | None = None
    ) -> list[ev.Effect]:
        """Creates a group for the asking worker. Raises TooFewWorkersError.

        `asked`: settings from the worker. They count for the first group of the job only. `branch_of`: see `Resolve`.
        """
        settings = self._settings.get(group.job, asked)
        members = self._placing.first_members(group, asking, settings, branch_of)
        return self.renew(ReplicaGroup(group, NO_EPOCH, members, 1, settings), members)

    def renew(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """Gives the group these members under a new epoch."""
        copies = rules.required_copies(group.settings, members)
        new = replace(group, epoch=self.epochs.next(), members=members, required_copies=copies)
        if (former := self.groups.get(new.group)) is None:
            self._settings.setdefault(new.group.job, new.settings)
        else:
            for member in former.members:
                if new.member(member.worker.worker_id) is None:
                    self._membership.may_store(member.worker.worker_id, new.group)
        self._table.put(new)
        self._rest_if_short(new)
        return [ev.PersistGroup(new), ev.PublishGroup(new)]

    def _rest_if_short(self, group: ReplicaGroup) -> None:
        if group.group in self._table.short():
            self._waiting.rest(group.group)
        elif group.group not in self._waiting:
            self._waiting.discard(group.group)

    def drop(self, group: GroupId) -> None:
        self._table.drop(group)
        self._waiting.discard(group)

    # ---------------------------------------------------------------- settings

    def settings_of(self, job: str) -> JobSettings | None:
        """Settings for new groups of the job. None: the job has had no group yet."""
        return self._settings.get(job)

    def remember(self, job: str, settings: JobSettings) -> None:
        """Uses these settings for further groups of the job."""
        self._settings[job] = settings

    def forget_settings(self, job: str) -> None:
        self._settings.pop(job, None)

    def resettle(self, group: ReplicaGroup, settings: JobSettings, surplus: Collection[str]) -> list[ev.Effect]:
        """Applies other settings under a new epoch. Members are added, or leave as `rules.shortened` allows."""
        changed = replace(group, settings=settings)
        return self.renew(changed, self._shortened(changed, self._placing.filled(changed, group.members), surplus))

    def shorten(self, group: ReplicaGroup, surplus: Collection[str]) -> list[ev.Effect]:
        """Removes surplus members as far as safety allows now."""
        members = self._shortened(group, group.members, surplus)
        return self.renew(group, members) if members != group.members else []

    def too_long(self, group: ReplicaGroup) -> bool:
        """Whether more members stay than the settings ask for."""
        staying = sum(m.worker.worker_id not in self._membership.draining for m in group.members)
        return staying > group.settings.replication_factor + 1

    def _shortened(self, group: ReplicaGroup, members: rules.Members, surplus: Collection[str]) -> rules.Members:
        draining = self._membership.draining
        return rules.shortened(
            group.settings, members, surplus, draining, self._membership.is_present, self._membership.place
        )

    # ---------------------------------------------------------------- repair

    def repair(self, group: ReplicaGroup, members: rules.Members) -> list[ev.Effect]:
        """Gives the group these members without the lost ones, and adds replacements (Rhino 4.2.3)."""
        if members == group.members and self._is_sound(group):
            return []
        records, owner = self._membership.records, group.owner.worker_id
        members = rules.without_impaired(
            members,
            self._impaired.ids(),
            self._membership.draining,
            lambda worker: self._membership.is_heard_lately(worker, self._now),
        )
        staying = rules.settled(
            members,
            self._membership.is_present,
            lambda worker: worker.worker_id == owner and group.group in records[owner].suspected,
        )
        members = self._without_draining(group, self._placing.filled(group, staying))
        return self.renew(group, members) if members != group.members else []

    def _is_sound(self, group: ReplicaGroup) -> bool:
        """Whether no rule of `repair` would change anything. Most groups of a returning worker are sound."""
        if len(group.members) <= group.settings.replication_factor:
            return False
        draining, impaired, present = self._membership.draining, self._impaired.ids(), self._membership.is_present
        return all(
            m.whole and present(m.worker) and m.worker.worker_id not in draining and m.worker.worker_id not in impaired
            for m in group.members
        )

    def _without_draining(self, group: ReplicaGroup, members: rules.Members) -> rules.Members:
        """Lets draining members leave.

        A source stays until the others have its versions, even if they report to be whole.
        """
        draining, sources = self._membership.draining, self._returned.joined(group.group)
        return rules.without_draining(group.settings, members, draining, sources, self._membership.is_present)

    def repair_around(self, *workers: str) -> list[ev.Effect]:
        """Repairs the groups affected by a change of these workers.

        These are the groups of the workers, and all groups short of members or with a draining or impaired member:
        another worker may be eligible now. Groups with the fewest whole members come first. Of many groups some are
        repaired at once, and the others by `repair_more`. Groups already waiting cost nothing again.
        """
        for name in self._waiting.resting():
            self._waiting.add(self.groups[name])
        for worker_id in sorted({*workers, *self._membership.draining, *self._impaired.ids()}):
            for group in self._table.groups_of(worker_id):
                self._waiting.add(group)
        return self.repair_more()

    def repair_more(self) -> list[ev.Effect]:
        """Repairs a limited number of the waiting groups, so heartbeats are answered in between."""
        effects: list[ev.Effect] = []
        for name in self._waiting.take(REPAIRS_AT_ONCE):
            group = self.groups[name]
            effects += self.repair(group, group.members)
            self._rest_if_short(self.groups[name])
        return effects

    def next_deadline(self) -> float | None:
        """When `repair_more` has to be called. None: no group waits for it."""
        return self._now + REPAIR_PAUSE_S if self._waiting else None

    def check_invariants(self) -> None:
        self._waiting.check_invariants(self._table.short())

    def suspect(self, record: WorkerRecord) -> list[ev.Effect]:
        """Stops commits from waiting for this worker: its process has ended.

        The worker keeps its place in the chain, because it may be back in a moment.
        """
        effects: list[ev.Effect] = []
        for group in self.of_worker(record.worker.worker_id):
            members = rules.suspected(group, record.worker.worker_id, self._membership.is_live)
            if members != group.members:
                record.suspected.add(group.group)
                effects += self.renew(group, members)
        return effects

    def reconsider(self, worker_id: str) -> list[ev.Effect]:
        """Repairs the groups of a newly impaired or recovered worker.

        A recovered worker catches up under a new epoch before it counts. Its reports under the present epoch may be
        older than its missing files.
        """
        effects: list[ev.Effect] = []
        for group in self.of_worker(worker_id):
            changed = self.repair(group, group.members)
            member = self.groups[group.group].member(worker_id)
            if not changed and worker_id not in self._impaired.ids() and member is not None and not member.whole:
                changed = self.renew(group, group.members)
            effects += changed
        return effects

    # ---------------------------------------------------------------- single members

    def extend(self, group: ReplicaGroup, leaving: str) -> list[ev.Effect]:
        """Adds one member beyond the chain's length, not whole yet. Changes nothing if no worker is eligible.

        `leaving`: the id of the member to be replaced.
        """
        taken = [m.worker for m in group.members]
        related = self._placing.related_chain(group.group, taken[0])
        members = group.settings.replication_factor + 1
        wish = Wish(preferred=related, leaving=(leaving,), members=members)
        added = self._placing.choose(group.group, 1, taken, wish)
        return self.renew(group, (*group.members, *(Member(worker, False) for worker in added))) if added else []

    def join(self, group: ReplicaGroup, worker: Worker) -> list[ev.Effect]:
        """Adds this worker beyond the chain's length, not whole yet.

        Changes nothing if the worker is not eligible, or if no whole member is present to catch up from.
        """
        served = any(m.whole and self._membership.is_present(m.worker) for m in group.members)
        taken = [m.worker for m in group.members]
        if not served or self._placing.choose(group.group, 1, taken, Wish(first=[worker.worker_id])) != [worker]:
            return []
        return self.renew(group, (*group.members, Member(worker, False)))

    def swap(self, group: ReplicaGroup, worker: Worker) -> list[ev.Effect]:
        """Replaces the last member by this worker. The worker must store most of the group already, the member must
        not.
        """
        *staying, last = group.members
        wish = Wish(first=[worker.worker_id])
        eligible = self._placing.choose(group.group, 1, [m.worker for m in staying], wish)
        keepers = self._placing.keepers(group.group)
        if eligible != [worker] or worker.worker_id not in keepers:
            return []
        # While the last member is not live, its reports are old, and it may have more of the group than they say.
        begun = self._membership.is_live(last.worker) and not last.whole
        if not begun or last.worker.worker_id in keepers:
            return []
        return self.repair(group, (*staying, Member(worker, False)))

    def owned_by(self, group: ReplicaGroup, worker_id: str) -> rules.Members:
        """Members with another owner. Draining members leave as soon as the group can spare them.

        Raises PreconditionError.
        """
        membership = self._membership
        owned = rules.owned_by(group, worker_id, membership.is_present, membership.draining, membership.place)
        return self._without_draining(group, owned)
