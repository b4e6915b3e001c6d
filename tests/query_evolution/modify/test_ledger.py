import pytest

from query_evolution.modify.ledger import Binding, Figures, Findings, Judged, Ledger, Return, State, View
from query_evolution.modify.record import Canary, Change, Kind, Record
from rhino_core.errors import LocalProtocolError

OK = Findings()


def record(number: int, target: str = "f", *, removes: bool = False, dry_run: bool = False, canary: int = 0) -> Record:
    trial = Canary(canary, max_batch_ms=500) if canary else None
    return Record(number, Change(Kind.FUNCTION, target, removes), "someone", 0, dry_run, trial)


def judged(**left: int) -> dict[int, Judged]:
    """Figures of the canary of record 1, by batch (`b5`), with the batches left after each."""
    return {int(batch[1:]): Judged(Figures(100, {}), {1: its}) for batch, its in left.items()}


def ledger(
    *records: Record,
    outcomes: dict[int, Findings] | None = None,
    bindings: dict[int, Binding] | None = None,
    returned: dict[int, Return] | None = None,
    figures: dict[int, Judged] | None = None,
) -> Ledger:
    return Ledger({one.number: one for one in records}, outcomes or {}, bindings or {}, returned or {}, figures or {})


def short(view: View) -> tuple[State, int | None, int | None]:
    return view.state, view.first_batch, view.last_batch


def test_a_record_waits_for_a_driver_and_then_for_a_batch() -> None:
    assert ledger(record(1)).view(1).state is State.PENDING
    assert ledger(record(1), outcomes={1: OK}).view(1).state is State.ACCEPTED
    assert short(ledger(record(1), outcomes={1: OK}, bindings={7: Binding((1,))}).view(1)) == (State.IN_FORCE, 7, None)


def test_a_dry_run_ends_with_its_checks() -> None:
    assert ledger(record(1, dry_run=True), outcomes={1: OK}).view(1).state is State.CHECKED


def test_a_refused_record_keeps_the_reason() -> None:
    view = ledger(record(1), outcomes={1: Findings("no function f")}).view(1)
    assert (view.state, view.reason, view.first_batch) == (State.REFUSED, "no function f", None)
    assert ledger(record(1), outcomes={1: Findings("by me", withdrawn=True)}).view(1).state is State.WITHDRAWN


def test_a_binding_ends_the_modifications_that_it_replaces() -> None:
    outcomes = dict.fromkeys((1, 2, 3), OK)
    bindings = {5: Binding((1,)), 8: Binding((2, 3), replaces=(1,))}
    found = ledger(record(1), record(2, "other"), record(3), outcomes=outcomes, bindings=bindings)
    assert [short(view) for view in found.views()] == [
        (State.REPLACED, 5, 7),
        (State.IN_FORCE, 8, None),
        (State.IN_FORCE, 8, None),
    ]


def test_a_failed_batch_gives_its_modification_up_and_the_former_one_goes_on() -> None:
    failed, bindings = {8: Return(8, "no score")}, {5: Binding((1,)), 8: Binding((2,), replaces=(1,))}
    found = ledger(record(1), record(2), outcomes={1: OK, 2: OK}, bindings=bindings, returned=failed)
    assert short(found.view(1)) == (State.IN_FORCE, 5, None)
    assert (short(found.view(2)), found.view(2).reason) == ((State.RETURNED, 8, 7), "no score")


def test_a_canary_lasts_until_the_driver_has_judged_its_last_batch() -> None:
    bindings = {5: Binding((1,))}
    others = {4: Judged(Figures(90, {}), {9: 0})}
    trial = ledger(record(1, canary=2), outcomes={1: OK}, bindings=bindings, figures=others | judged(b5=1))
    assert short(trial.view(1)) == (State.CANARY, 5, None)
    assert list(trial.view(1).figures) == [5]
    over = ledger(record(1, canary=2), outcomes={1: OK}, bindings=bindings, figures=others | judged(b7=0, b5=1))
    assert short(over.view(1)) == (State.IN_FORCE, 5, None)
    assert list(over.view(1).figures) == [5, 7]


def test_a_broken_limit_ends_a_canary_after_the_batch_that_broke_it() -> None:
    slow = {5: Return(7, "batch 6 took 501 ms")}
    for figures in (judged(b5=1), judged(b5=1, b6=0)):  # a crash may come between the return and the figures
        found = ledger(
            record(1, canary=2), outcomes={1: OK}, bindings={5: Binding((1,))}, returned=slow, figures=figures
        )
        assert (short(found.view(1)), found.view(1).reason) == ((State.RETURNED, 5, 6), "batch 6 took 501 ms")


def test_a_void_binding_replaces_nothing_and_what_it_replaced_may_be_replaced_again() -> None:
    bindings = {5: Binding((1,)), 8: Binding((2,), replaces=(1,)), 11: Binding((3,), replaces=(1, 2))}
    withdrawn, records = {8: Return(10, "withdrawn")}, (record(1), record(2), record(3, removes=True))
    found = ledger(*records, outcomes=dict.fromkeys((1, 2, 3), OK), bindings=bindings, returned=withdrawn)
    assert [short(view) for view in found.views()] == [
        (State.REPLACED, 5, 10),
        (State.RETURNED, 8, 9),
        (State.IN_FORCE, 11, None),
    ]


def test_a_canary_may_be_removed_and_not_replaced() -> None:
    trial = ledger(record(1, canary=2), outcomes={1: OK}, bindings={5: Binding((1,))})
    assert trial.waiting(Change(Kind.FUNCTION, "f")) == 1
    assert trial.waiting(Change(Kind.FUNCTION, "f", removes=True)) is None
    bindings = {5: Binding((1,)), 6: Binding((2,), replaces=(1,))}
    removed = ledger(record(1, canary=2), record(2, removes=True), outcomes={1: OK, 2: OK}, bindings=bindings)
    assert short(removed.view(1)) == (State.REPLACED, 5, 5)


def test_only_what_is_on_its_way_waits() -> None:
    found = ledger(record(1), record(2, "g", dry_run=True), outcomes={1: OK})
    assert found.waiting(Change(Kind.FUNCTION, "f")) == 1
    assert found.waiting(Change(Kind.FUNCTION, "g")) is None
    assert found.waiting(Change(Kind.FILTER, "f")) is None


def test_files_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="bound_to_a_batch is impossible in state refused"):
        ledger(record(1), outcomes={1: Findings("no")}, bindings={3: Binding((1,))}).view(1)
