"""When new code has the operators of the checkpoint."""

from __future__ import annotations

import pytest

from spark_connector.restart.rehearsal import difference
from tests.spark_connector.restructure.described import operators

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
