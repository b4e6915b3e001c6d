from __future__ import annotations

import pytest

from rhino_core.errors import LocalProtocolError
from rhino_core.witnesses.log import Log
from rhino_core.witnesses.messages import Position, Record, Snapshot


def test_committed_records_stay() -> None:
    log = Log(Snapshot(), [Record(1), Record(1), Record(2)])
    log.commit(2)
    log.replace(2, [])
    assert log.last == Position(1, 2)
    with pytest.raises(LocalProtocolError, match="index 1: committed are those up to 2"):
        log.replace(1, [])


def test_a_fold_keeps_the_effect() -> None:
    records = [Record(1, {"a": b"1", "b": b"1"}, ("x",)), Record(1, {"b": None}), Record(2, {"a": b"2"}, ("x", "y"))]
    log = Log(Snapshot(), records, kept=1)
    log.commit(3)
    assert log.fold() == tuple(records[:2])
    assert log.snapshot() == Snapshot(Position(1, 2), {"a": b"1"}, ("x",))
    assert log.witnesses == ("x", "y")
    assert log.fold() == ()


def test_a_set_of_witnesses_goes_with_its_record() -> None:
    log = Log(Snapshot(), [Record(1, {}, ("x",)), Record(1, {}, ("x", "y"))])
    assert (log.witnesses, log.changed_at) == (("x", "y"), 2)
    log.replace(1, [])
    assert (log.witnesses, log.changed_at) == (("x",), 1)
