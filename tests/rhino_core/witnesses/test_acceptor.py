from __future__ import annotations

import pytest

from rhino_core.errors import PreconditionError
from rhino_core.witnesses.acceptor import Acceptor, Effect, Reply, SaveFolded, SavePromise, SaveRecords, Stored
from rhino_core.witnesses.messages import ORIGIN, Append, Fetch, Fetched, Position, Promise, Promised, Record, Request

RECORDS = tuple(Record(5, {f"k{number}": b"v"}) for number in range(1, 5))


def append(generation: int, prev: Position, *records: Record, committed: int = 0) -> Append:
    return Append("c", generation, f"m{generation}", prev, records, committed, 0.0)


def handle(acceptor: Acceptor, request: Request) -> tuple[list[Effect], object]:
    """The writes, and the answer behind them."""
    *saves, reply = acceptor.handle(request, now=0.0)
    assert isinstance(reply, Reply)
    acceptor.check_invariants()
    return saves, reply.answer


def full() -> Acceptor:
    acceptor = Acceptor("a", Stored())
    handle(acceptor, append(5, ORIGIN, *RECORDS, committed=2))
    return acceptor


def test_a_promise_is_saved_before_it_is_given() -> None:
    saves, answer = handle(Acceptor("a", Stored()), Promise("c", 3, "m"))
    assert saves == [SavePromise("c", 3, "m")]
    assert answer == Promised("a", 3, True, 3, ORIGIN)


@pytest.mark.parametrize(("generation", "candidate", "granted"), [(3, "m", True), (3, "n", False), (2, "m", False)])
def test_a_generation_is_promised_to_one_candidate(generation: int, candidate: str, granted: bool) -> None:
    acceptor = Acceptor("a", Stored("c", promised=3, candidate="m"))
    saves, answer = handle(acceptor, Promise("c", generation, candidate))
    assert saves == []
    assert answer == Promised("a", generation, granted, 3, ORIGIN)


def test_a_promise_tells_the_end_of_the_log() -> None:
    _, answer = handle(full(), Promise("c", 9, "m"))
    assert isinstance(answer, Promised)
    assert answer.last == Position(5, 4)


def test_records_are_saved_before_the_answer() -> None:
    saves, answer = handle(Acceptor("a", Stored()), append(5, ORIGIN, *RECORDS))
    assert saves == [SavePromise("c", 5, "m5"), SaveRecords(0, RECORDS)]
    assert answer.matched == 4  # type: ignore[attr-defined]


def test_a_lower_generation_appends_nothing() -> None:
    acceptor = Acceptor("a", Stored("c", promised=6, candidate="n"))
    saves, answer = handle(acceptor, append(5, ORIGIN, *RECORDS))
    assert saves == []
    assert (answer.promised, answer.matched) == (6, 0)  # type: ignore[attr-defined]


def test_a_late_append_takes_nothing_back() -> None:
    acceptor = full()
    saves, answer = handle(acceptor, append(5, ORIGIN, RECORDS[0]))
    assert saves == []
    assert answer.matched == 1  # type: ignore[attr-defined]
    assert handle(acceptor, Promise("c", 9, "m"))[1].last == Position(5, 4)  # type: ignore[attr-defined]


def test_records_of_a_former_leader_give_way() -> None:
    other = Record(6, {"k": b"w"})
    saves, answer = handle(full(), append(6, Position(5, 3), other))
    assert saves == [SavePromise("c", 6, "m6"), SaveRecords(3, (other,))]
    assert answer.matched == 4  # type: ignore[attr-defined]


def test_a_gap_is_answered_with_the_committed_index() -> None:
    saves, answer = handle(full(), append(5, Position(5, 7), Record(5)))
    assert saves == []
    assert answer.matched == 2  # type: ignore[attr-defined]


def test_a_standby_reads_committed_records_and_the_candidate_all() -> None:
    acceptor = full()
    handle(acceptor, Promise("c", 9, "m"))
    for generation, records in ((0, RECORDS[1:2]), (9, RECORDS[1:])):
        answer = handle(acceptor, Fetch("c", 1, generation))[1]
        assert isinstance(answer, Fetched)
        assert (answer.records, answer.committed, answer.snapshot) == (records, 2, None)


def test_the_log_stays_bounded() -> None:
    acceptor = Acceptor("a", Stored(), kept=2)
    saves, _ = handle(acceptor, append(5, ORIGIN, *RECORDS, committed=4))
    assert saves[-1] == SaveFolded(Position(5, 2), (), RECORDS[:2])
    answer = handle(acceptor, Fetch("c", 0))[1]
    assert isinstance(answer, Fetched)
    assert answer.snapshot is not None
    assert (answer.snapshot.last, answer.snapshot.values) == (Position(5, 2), {"k1": b"v", "k2": b"v"})
    assert answer.records == RECORDS[2:]


def test_the_journal_of_another_cluster_is_refused() -> None:
    with pytest.raises(PreconditionError, match="witness a keeps the journal of cluster c, and not of d"):
        full().handle(Promise("d", 9, "m"), now=0.0)
