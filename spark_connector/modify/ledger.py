"""What the records, outcomes, bindings and returns beside a query checkpoint mean together. Pure.

The driver has the same rules, in spark_connector/scala/rhino/modify/Ledger.scala.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rhino_core.transitions import TransitionTable
from spark_connector.modify.record import Kind, Record


class State(enum.StrEnum):
    """Where a modification is on its way."""

    PENDING = "pending"  # no driver has checked it yet
    ACCEPTED = "accepted"  # checked; the next batch binds it
    CHECKED = "checked"  # a dry run, and nothing is wrong with it
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"  # taken back before it was checked
    IN_FORCE = "in_force"
    REPLACED = "replaced"  # a newer one of the same kind and target is in force, or has taken it out
    RETURNED = "returned"  # given up; the former version is in force again

    @property
    def ended(self) -> bool:
        """Whether its fate is known."""
        return self not in (State.PENDING, State.ACCEPTED)


class Fact(enum.StrEnum):
    """What the files say about a modification."""

    PASSED = "checks_passed"
    PASSED_DRY = "checks_passed_of_a_dry_run"
    FAILED = "a_check_failed"
    TAKEN_BACK = "withdraw"
    BOUND = "bound_to_a_batch"
    SUPERSEDED = "a_newer_one_is_bound"
    GIVEN_UP = "given_up"  # its first batch failed, or it was withdrawn while the query was stopped


MODIFICATION = TransitionTable(
    State.PENDING,
    {
        (State.PENDING, Fact.PASSED): State.ACCEPTED,
        (State.PENDING, Fact.PASSED_DRY): State.CHECKED,
        (State.PENDING, Fact.FAILED): State.REFUSED,
        (State.PENDING, Fact.TAKEN_BACK): State.WITHDRAWN,
        (State.ACCEPTED, Fact.BOUND): State.IN_FORCE,
        (State.IN_FORCE, Fact.SUPERSEDED): State.REPLACED,
        (State.IN_FORCE, Fact.GIVEN_UP): State.RETURNED,
    },
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a driver's checks have found. `refused`: the reason, or ""."""

    refused: str = ""
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A modification with its state. It counts for the batches from `first_batch` to `last_batch`, None: still.

    `reason`: why it was refused or has been returned.
    """

    record: Record
    state: State
    first_batch: int | None = None
    last_batch: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """`bindings`: by batch, the records that came in force with it. `returned`: by batch, why its binding is void."""

    records: Mapping[int, Record]
    outcomes: Mapping[int, Outcome]
    bindings: Mapping[int, tuple[int, ...]]
    returned: Mapping[int, str]

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
        after = self._superseded_at(record)
        reason = self.outcomes[number].refused if number in self.outcomes else ""
        if batch is not None and batch in self.returned:
            reason = self.returned[batch]
        return View(record, state, batch, None if after is None or state is not State.REPLACED else after - 1, reason)

    def waiting(self, kind: Kind, target: str) -> int | None:
        """Returns the number of a modification of this slot that is on its way, or None. Dry runs do not count."""
        on_the_way = (view.record for view in self.views() if not view.state.ended and not view.record.dry_run)
        return next((record.number for record in on_the_way if record.slot == (kind, target)), None)

    def _facts(self, record: Record) -> Iterator[Fact]:
        """Yields what is known about a record, in the order in which it happened."""
        outcome, batch = self.outcomes.get(record.number), self._batch(record.number)
        if outcome is not None:
            passed = Fact.PASSED_DRY if record.dry_run else Fact.PASSED
            failed = Fact.TAKEN_BACK if outcome.withdrawn else Fact.FAILED
            yield failed if outcome.refused else passed
        if batch is not None:
            yield Fact.BOUND
            if batch in self.returned:
                yield Fact.GIVEN_UP
            elif self._superseded_at(record) is not None:
                yield Fact.SUPERSEDED

    def _batch(self, number: int) -> int | None:
        return next((batch for batch, numbers in self.bindings.items() if number in numbers), None)

    def _superseded_at(self, record: Record) -> int | None:
        """Returns the first batch with a newer record of the same slot, whose binding is not void."""
        later = (
            batch
            for batch, numbers in self.bindings.items()
            if batch not in self.returned
            and any(number > record.number and self.records[number].slot == record.slot for number in numbers)
        )
        return min(later, default=None)
