"""The state of each modification, from the facts beside a query checkpoint. Pure.

The driver has the rules (query_evolution/scala/modify/records/Ledger.scala): a batch's modifications, replacements,
the length of a canary. It writes its decisions into bindings, figures and returns, and commands read them here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from query_evolution.modify.record import Change, Record
from rhino_core.transitions import TransitionTable


class State(enum.StrEnum):
    """The states of a modification."""

    PENDING = "pending"  # no driver has checked it yet
    ACCEPTED = "accepted"  # checked; the next batch binds it
    CANARY = "canary"  # in force; its first batches are judged
    CHECKED = "checked"  # a dry run, and nothing is wrong with it
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"  # taken back before it was checked
    IN_FORCE = "in_force"
    REPLACED = "replaced"  # a newer one of the same kind and target is in force, or has taken it out
    RETURNED = "returned"  # given up; the former version is in force again

    @property
    def ended(self) -> bool:
        """Whether its fate is known."""
        return self not in (State.PENDING, State.ACCEPTED, State.CANARY)


class Fact(enum.StrEnum):
    """The state of a modification according to its files."""

    PASSED = "checks_passed"
    PASSED_DRY = "checks_passed_of_a_dry_run"
    FAILED = "a_check_failed"
    TAKEN_BACK = "withdraw"
    BOUND = "bound_to_a_batch"
    BOUND_CANARY = "bound_with_a_canary"
    PROVEN = "its_batches_kept_the_limits"
    SUPERSEDED = "a_newer_one_is_bound"
    GIVEN_UP = "given_up"  # a first batch failed or broke a limit, or it was withdrawn while the query was stopped


MODIFICATION = TransitionTable(
    State.PENDING,
    {
        (State.PENDING, Fact.PASSED): State.ACCEPTED,
        (State.PENDING, Fact.PASSED_DRY): State.CHECKED,
        (State.PENDING, Fact.FAILED): State.REFUSED,
        (State.PENDING, Fact.TAKEN_BACK): State.WITHDRAWN,
        (State.ACCEPTED, Fact.BOUND): State.IN_FORCE,
        (State.ACCEPTED, Fact.BOUND_CANARY): State.CANARY,
        (State.CANARY, Fact.PROVEN): State.IN_FORCE,
        (State.CANARY, Fact.SUPERSEDED): State.REPLACED,
        (State.CANARY, Fact.GIVEN_UP): State.RETURNED,
        (State.IN_FORCE, Fact.SUPERSEDED): State.REPLACED,
        (State.IN_FORCE, Fact.GIVEN_UP): State.RETURNED,
    },
)


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of a driver's checks. `refused`: the reason, or ""."""

    refused: str = ""
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Return:
    """A binding does not count from batch `start` on."""

    start: int
    reason: str


@dataclass(frozen=True, slots=True)
class Binding:
    """Records in force from a batch on. `replaces`: the older ones of the same slots."""

    records: tuple[int, ...]
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a committed batch of a canary: its time, and its rows by the names of points."""

    batch_ms: int
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Judged:
    """A committed batch with canaries. `left`: by record with a canary, how many of its batches come after this one."""

    figures: Figures
    left: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """A modification with its state. It counts for the batches from `first_batch` to `last_batch`, None: still.

    After a failure of its first batch, a returned one has counted for none: its `last_batch` is the batch before.
    `reason`: of the refusal or return. `figures`: of the batches of its canary.
    """

    record: Record
    state: State
    first_batch: int | None = None
    last_batch: int | None = None
    reason: str = ""
    figures: Mapping[int, Figures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """`bindings`, `judged`: by batch. `returned`: by the batch of a void binding."""

    records: Mapping[int, Record]
    outcomes: Mapping[int, Findings]
    bindings: Mapping[int, Binding]
    returned: Mapping[int, Return]
    judged: Mapping[int, Judged] = field(default_factory=dict)

    def views(self) -> tuple[View, ...]:
        """Returns all modifications, oldest first."""
        return tuple(self.view(number) for number in sorted(self.records))

    def view(self, number: int) -> View:
        """Raises KeyError for an unknown number, and LocalProtocolError if the files contradict each other."""
        record = self.records[number]
        state = MODIFICATION.first
        for fact in self._facts(record):
            state = MODIFICATION.next(state, fact)
        batch = self._batch(number)
        reason = self.outcomes[number].refused if number in self.outcomes else ""
        given_up = self.returned.get(batch) if batch is not None and state is State.RETURNED else None
        after = given_up.start if given_up is not None else self._replaced_at(number)
        return View(
            record,
            state,
            batch,
            None if after is None else after - 1,
            given_up.reason if given_up is not None else reason,
            self._figures(number),
        )

    def waiting(self, change: Change) -> int | None:
        """Returns the number of a pending modification of the same slot, or None. Dry runs do not count.

        A canary is on its way as well, but may be removed.
        """
        on_the_way = (view for view in self.views() if not view.state.ended and not view.record.dry_run)
        return next(
            (
                view.record.number
                for view in on_the_way
                if view.record.slot == (change.kind, change.target)
                and not (change.removes and view.state is State.CANARY)
            ),
            None,
        )

    def _facts(self, record: Record) -> Iterator[Fact]:
        """Yields the known events of a record, in their order."""
        outcome, batch = self.outcomes.get(record.number), self._batch(record.number)
        if outcome is not None:
            passed = Fact.PASSED_DRY if record.dry_run else Fact.PASSED
            failed = Fact.TAKEN_BACK if outcome.withdrawn else Fact.FAILED
            yield failed if outcome.refused else passed
        if batch is None:
            return
        yield Fact.BOUND_CANARY if record.canary else Fact.BOUND
        if any(judged.left.get(record.number) == 0 for judged in self.judged.values()):
            yield Fact.PROVEN
        replaced, returned = self._replaced_at(record.number), self.returned.get(batch)
        if returned is not None and (replaced is None or returned.start <= replaced):
            yield Fact.GIVEN_UP
        elif replaced is not None:
            yield Fact.SUPERSEDED

    def _batch(self, number: int) -> int | None:
        return next((batch for batch, binding in self.bindings.items() if number in binding.records), None)

    def _figures(self, number: int) -> dict[int, Figures]:
        """Returns the figures of the batches of its canary, oldest first."""
        return {at: judged.figures for at, judged in sorted(self.judged.items()) if number in judged.left}

    def _replaced_at(self, number: int) -> int | None:
        """Returns the first batch with a valid binding that replaces the record."""
        valid = (batch for batch in self.bindings if batch not in self.returned)
        return min((batch for batch in valid if number in self.bindings[batch].replaces), default=None)
