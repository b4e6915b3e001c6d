"""When new code has the operators of the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.errors import PreconditionError
from spark_connector.restart.rehearsal import check_operators, difference
from spark_connector.restructure.operators import JOIN
from tests.spark_connector.restructure.described import operators, write_operators, write_versioned

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
    with pytest.raises(PreconditionError, match="operator 0 has other columns"):
        check_operators(old, other)
    with pytest.raises(PreconditionError, match=f"operator 1: {TWS} is another kind of operator than {JOIN}"):
        check_operators(old, planned(tmp_path / "join", JOIN, PAIRS, USERS))
