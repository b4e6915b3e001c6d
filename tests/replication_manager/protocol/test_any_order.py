"""Events in any order, restarts included: what must hold after every one of them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups.group_table import GROUP_BYTES_MIN
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import RhinoError
from rhino_core.ids import Epoch, GroupId, JobSettings, StoreId, StoreVersion, Version
from tests.replication_manager.protocol.harness import Manager, worker

NAMES = st.sampled_from("abcd")
GROUPS = st.builds(GroupId, st.just("job"), st.integers(0, 1), st.integers(0, 1))
R = 1


class AnyOrder(RuleBasedStateMachine):
    """Workers come, beat, fall silent and lose their disks; groups are used and changed; the manager restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = Manager()
        self.incarnations = dict.fromkeys("abcd", 1)
        self.newest: dict[GroupId, Epoch] = {}
        self.batch = 0

    def attempt(self, event: ev.Event) -> None:
        """Also refused ones, which must change nothing."""
        before = dict(self.manager.machine.groups)
        try:
            effects = self.manager.do(event)
        except RhinoError:
            assert self.manager.machine.groups == before
            return
        for effect in effects:
            if isinstance(effect, ev.PersistGroup):
                group = effect.group
                assert group.epoch > self.newest.get(group.group, Epoch(0, 0)), "an epoch was issued again"
                self.newest[group.group] = group.epoch
                was = before.get(group.group)
                joined = {m.worker.worker_id for m in group.members if was and not was.member(m.worker.worker_id)}
                returned = isinstance(event, ev.Registered | ev.Beat)  # a source that nobody can do without
                assert returned or not joined & set(self.manager.machine.draining), "placed on a draining worker"

    def incarnation(self, name: str) -> str:
        return worker(name, self.incarnations[name]).incarnation

    @rule(name=NAMES, new_incarnation=st.booleans(), process=st.integers(0, 2))
    def register(self, name: str, new_incarnation: bool, process: int) -> None:
        self.incarnations[name] += new_incarnation
        found = worker(name, self.incarnations[name])
        self.attempt(ev.Registered(found, f"{name}{process}", max(self.newest.values(), default=Epoch(0, 0)), ()))

    @rule(name=NAMES, group=GROUPS, current=st.booleans(), whole=st.booleans())
    def beat(self, name: str, group: GroupId, current: bool, whole: bool) -> None:
        known = self.manager.machine.groups.get(group)
        epoch = known.epoch if known and current else Epoch(1, 1)
        written = (StoreVersion(StoreId(*group, "default"), Version(self.batch, "x")),)
        report = Report(group, epoch, whole, self.batch << 19, written, written)
        self.attempt(ev.Beat(name, self.incarnation(name), 10, 10, 0, 0, (report,)))

    @rule(name=NAMES, process=st.integers(0, 2), kind=st.sampled_from([ev.Leaving, ev.StreamBroken, ev.Refused]))
    def silence(
        self, name: str, process: int, kind: type[ev.Leaving] | type[ev.StreamBroken] | type[ev.Refused]
    ) -> None:
        if kind is ev.Refused:
            self.attempt(ev.StreamBroken(name, f"{name}{process}"))
        self.attempt(kind(name, f"{name}{process}"))

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.manager.now += seconds
        self.attempt(ev.Tick())
        deadline = self.manager.machine.next_deadline()
        assert deadline is None or deadline > self.manager.now

    @rule(name=NAMES, group=GROUPS)
    def resolve(self, name: str, group: GroupId) -> None:
        self.attempt(ev.Resolve(group, name, JobSettings(R)))

    @rule(group=GROUPS, add=st.sampled_from(["", "a", "b", "c"]), owner=st.sampled_from(["", "a", "b", "c"]))
    def change(self, group: GroupId, add: str, owner: str) -> None:
        self.attempt(ev.Change(group, add, owner))

    @rule(factor=st.integers(0, 2), copies=st.sampled_from([None, 1]))
    def start_again(self, factor: int, copies: int | None) -> None:
        wanted = JobSettings(factor, copies)
        self.attempt(ev.SettingsNamed("job", wanted))
        settings = {group.settings for group in self.manager.machine.groups.values()}
        assert all((s.replication_factor, s.copies) == (factor, wanted.copies) for s in settings)

    @rule(group=GROUPS)
    def log(self, group: GroupId) -> None:
        self.batch += 1
        version = StoreVersion(StoreId(*group, "default"), Version(self.batch, "x"))
        self.attempt(ev.BatchPublished("job", self.batch - 1, (version,), (version,)))

    @rule(name=NAMES, draining=st.booleans())
    def drain(self, name: str, draining: bool) -> None:
        self.attempt(ev.DrainSet(name, draining))

    @rule()
    def restart(self) -> None:
        self.manager.restart()

    @invariant()
    def journal_is_the_truth(self) -> None:
        assert self.manager.groups == self.manager.machine.groups
        assert self.manager.draining == set(self.manager.machine.draining)

    @invariant()
    def the_lost_are_members_only_while_nobody_can_take_over(self) -> None:
        machine = self.manager.machine
        records = machine.membership.records.values()
        if any((r.present and not r.process_id) or r.lost_in_silence for r in records):
            return  # a manager that was restarted, or heard nobody for a while, waits for the workers that it knows
        for group in machine.groups.values():
            if not any(m.whole and machine.membership.is_present(m.worker) for m in group.members):
                continue
            assert all(machine.membership.is_present(m.worker) for m in group.members), "a lost member stays"
            owner = machine.membership.records[group.owner.worker_id]
            suspected = (
                group.group in owner.suspected
            )  # its process has ended: it stays the owner, so that nothing moves
            assert group.members[0].whole or suspected, "the owner is not whole though another member is"
            present = [w.worker_id for w in machine.membership.present()]
            free = [w for w in present if group.member(w) is not None or w not in machine.draining]
            lacking = min(group.settings.replication_factor + 1, len(free)) - len(group.members)
            assert lacking <= 0, "a live worker could be a member"

    @invariant()
    def the_indexes_of_groups_and_reports_say_what_a_walk_finds(self) -> None:
        machine = self.manager.machine
        for name in ("a", "b", "c", "d", "e"):
            mine = {group.group for group in machine.groups.values() if group.member(name) is not None}
            assert set(machine.member_of(name)) == mine
            assert machine.owned_by(name) == sum(g.owner.worker_id == name for g in machine.groups.values())
        records = machine.membership.records
        groups = {group for record in records.values() for group in record.reports}
        for group in groups | machine.groups.keys():
            reporting = [r.worker.worker_id for r in machine.membership.with_report(group)]
            assert reporting == sorted(name for name, record in records.items() if group in record.reports)
        sizes = {
            group: max(r.reports[group].stored_bytes for r in records.values() if r.present and group in r.reports)
            for group in groups
            if any(r.present and group in r.reports for r in records.values())
        }
        assert machine.membership.reporting.sizes == {group: size for group, size in sizes.items() if size}
        for name in ("a", "b", "c", "d", "e"):
            carried = [max(sizes.get(group, 0), GROUP_BYTES_MIN) for group in machine.member_of(name)]
            assert machine.table.load_bytes[name] == sum(carried)
        ends = [record.lease_ends for record in records.values() if record.present]
        deadline = machine.membership.next_deadline()
        assert deadline is not None or not ends
        assert deadline is None or deadline <= min(ends, default=deadline)

    @invariant()
    def required_copies_can_be_had(self) -> None:
        for group in self.manager.machine.groups.values():
            assert 1 <= group.required_copies <= max(1, sum(m.whole for m in group.members))


def test_an_owner_whose_process_has_ended_stays_the_owner() -> None:
    """It does not count as whole meanwhile, though another member does."""
    case = AnyOrder()
    group = GroupId("job", 0, 0)
    steps: tuple[Callable[[], None], ...] = (
        lambda: case.register(name="a", new_incarnation=False, process=0),
        lambda: case.register(name="b", new_incarnation=False, process=1),
        lambda: case.resolve(name="b", group=group),
        lambda: case.silence(name="b", process=1, kind=ev.Refused),
    )
    for step in steps:
        step()
        case.journal_is_the_truth()
        case.the_lost_are_members_only_while_nobody_can_take_over()
        case.required_copies_can_be_had()
    members = case.manager.machine.groups[group].members
    assert [(m.worker.worker_id, m.whole) for m in members] == [("b", False), ("a", True)]


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
