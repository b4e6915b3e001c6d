"""When new code has the operators of the checkpoint, and how it is tried before it asks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from query_evolution.replace import rehearsal as module
from query_evolution.replace.rehearsal import (
    OPEN,
    REHEARSAL_PROVIDER,
    OtherOperatorsError,
    check_operators,
    difference,
    rehearse,
)
from query_evolution.structure.operators import JOIN
from rhino_core.errors import PreconditionError
from spark_connector.conf import PROVIDER_CLASSES, SPARK_PROVIDER
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.query_evolution.structure.described import operators, write_operators, write_versioned

COUNT = "stateStoreSave: k long -> count long?"
USERS = "dedupe: user string -> "


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ([COUNT, USERS], [COUNT, USERS], ""),
        ([], [], ""),
        (["stateStoreSave: k long -> count long?"], ["stateStoreSave: k long -> count long"], ""),
        ([COUNT], [COUNT, USERS], "it has 2, and the checkpoint 1"),
        ([COUNT], [], "it has 0, and the checkpoint 1"),
        ([COUNT], [USERS], "operator 0: stateStoreSave is another kind of operator than dedupe"),
        ([COUNT], ["stateStoreSave: k long -> sum double?"], "operator 0: the value in the state is"),
        ([COUNT, USERS], [COUNT, "dedupe: url string -> "], "operator 1 has other columns"),
    ],
)
def test_operators_must_stay(old: list[str], new: list[str], reason: str) -> None:
    assert difference(operators(*old), operators(*new)).startswith(reason)
    assert bool(difference(operators(*old), operators(*new))) == bool(reason)


def test_partitions_must_stay() -> None:
    found = difference(operators(COUNT, partitions=2), operators(COUNT, partitions=4))
    assert found == "operator 0 has 2 partitions, and the new one 4"


TWS = "transformWithStateInPySparkExec"
PAIRS = {"left-keyWithTsToValues": "k long, ts long -> a long, matched boolean", "right-tsWithKey": "ts long -> b long"}


def planned(folder: Path, name: str, families: dict[str, str], *plain: str, **variables: str) -> Path:
    """A checkpoint with an operator that has schema files of its own, after those of `plain`."""
    write_operators(folder, plain)
    write_versioned(folder, len(plain), name, families, variables=variables or None)
    return folder


def test_joins_with_column_families_must_stay(tmp_path: Path) -> None:
    old = planned(tmp_path / "old", JOIN, PAIRS)
    check_operators(old, planned(tmp_path / "same", JOIN, PAIRS))
    wider = PAIRS | {"right-tsWithKey": "ts long -> b string"}
    with pytest.raises(PreconditionError, match=r"operator 0: the value of right-tsWithKey in the state is"):
        check_operators(old, planned(tmp_path / "wider", JOIN, wider))
    renamed = PAIRS | {"right-tsWithKey": "ts long -> c long"}
    with pytest.raises(PreconditionError, match=r"(?s)operator 0 has other columns.*rhino restructure.*new operators"):
        check_operators(old, planned(tmp_path / "renamed", JOIN, renamed))


def test_only_processors_of_transform_with_state_are_left_to_spark(tmp_path: Path) -> None:
    """Beside them, other operators are compared as always."""
    state, more = {"total": "k long -> n long"}, {"total": "k long -> n long, m long", "last": "k long -> t long"}
    old = planned(tmp_path / "old", TWS, state, USERS, total="ValueState")
    check_operators(old, planned(tmp_path / "more", TWS, more, USERS, total="ValueState", last="ValueState"))
    other = planned(tmp_path / "other", TWS, more, "dedupe: url string -> ", total="ValueState", last="ValueState")
    with pytest.raises(OtherOperatorsError, match="operator 0 has other columns"):
        check_operators(old, other)
    with pytest.raises(OtherOperatorsError, match=f"operator 1: {TWS} is another kind of operator than {JOIN}"):
        check_operators(old, planned(tmp_path / "join", JOIN, PAIRS, USERS))


@dataclass
class FakeQuery:
    """A query without rows for a further batch."""

    status: dict[str, object] = field(default_factory=lambda: {"message": "Waiting for data to arrive"})

    def exception(self) -> None:
        return None


class Rehearsals:
    """Stands in for Spark: each query commits the next batch of its folder, if there are `rows` for it.

    `closing_s`: an executor has a store open for so long after the end of a query.
    """

    def __init__(self, rows: int, closing_s: float = 0) -> None:
        self.begun: list[tuple[Path, str]] = []
        self._rows = rows
        self._closing_s = closing_s

    @contextmanager
    def begin(self, rows: object, source: Path, folder: Path, *, provider: str, **limits: object) -> Iterator[Any]:
        self.begun.append((folder, provider))
        (folder / "commits").mkdir(exist_ok=True)
        batch = len(self.begun) - 1
        if batch < self._rows:
            (folder / "commits" / str(batch)).touch()
        mark = folder / OPEN / f"store-{batch}"
        mark.touch()
        yield FakeQuery()
        threading.Timer(self._closing_s, mark.unlink).start()


def query_checkpoint(folder: Path, provider: str) -> Path:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "job"}')
    (folder / "offsets" / "0").write_text("v1\n" + json.dumps({"conf": {PROVIDER_KEY: provider}}) + "\n-")
    return folder


@pytest.mark.parametrize(
    ("mode", "provider"), [("provider", REHEARSAL_PROVIDER), ("checkpoint", SPARK_PROVIDER)], ids=str
)
def test_a_rehearsal_keeps_its_state_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, provider: str
) -> None:
    played = Rehearsals(rows=5)
    monkeypatch.setattr(module, "begun", played.begin)
    at, rows = query_checkpoint(tmp_path, PROVIDER_CLASSES[mode]), Any
    rehearse(rows, at, output_mode="update", first_batch_s=30)
    ((folder, used),) = played.begun
    assert (folder.parent, used) == (at / "restarts" / "rehearsals", provider)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("rows", "times"),
    [(5, 2), (1, 2), (0, 1)],
    ids=["there are rows", "there are rows for one batch", "the first batch is not done in time"],
)
def test_a_new_driver_rehearses_a_second_time_with_the_state_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, times: int
) -> None:
    played = Rehearsals(rows, closing_s=0.3)
    monkeypatch.setattr(module, "begun", played.begin)
    at, began = query_checkpoint(tmp_path, PROVIDER_CLASSES["provider"]), time.monotonic()
    rehearse(Any, at, output_mode="update", first_batch_s=30, new_driver=True)
    assert len(played.begun) == times
    assert len({folder for folder, _ in played.begun}) == 1
    assert 0.3 <= time.monotonic() - began < module.CLOSED_S  # stores are closed, and nothing is waited for


def test_stores_that_stay_open_are_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Rehearsals(rows=5, closing_s=30)
    monkeypatch.setattr(module, "begun", played.begin)
    monkeypatch.setattr(module, "CLOSED_S", 0.1)
    monkeypatch.setattr(threading, "Timer", lambda *ignored: threading.Thread())
    at = query_checkpoint(tmp_path, PROVIDER_CLASSES["provider"])
    rehearse(Any, at, output_mode="update", first_batch_s=30, new_driver=True)
    assert len(played.begun) == 2
    assert not [*(at / "restarts" / "rehearsals").iterdir()]
