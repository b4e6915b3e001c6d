"""Python functions that come with SQL at a point: what their records have, and what cannot be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import LongType, StructField, StructType

from query_evolution.modify.code import PYTHON, code_of, codes_of, state_function
from query_evolution.modify.functions import CODE_MAX_BYTES
from query_evolution.modify.modifications import Modifications
from query_evolution.modify.record import Kind, Record
from rhino_core.errors import ConflictError, IntegrityError, InvalidRequestError

PLUS = udf(lambda value: value + 1, LongType())


def series(values: pd.Series) -> pd.Series:
    return values


def array(values: pa.Array) -> pa.Array:
    return values


def iterating(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from batches


def record_of(checkpoint: Path, number: int = 1) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((checkpoint / "modifications" / "records" / str(number)).read_text())
    return fields


def test_a_record_has_the_functions_that_its_sql_calls(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_columns("scored", {"y": "plus(y)"}, functions={"plus": PLUS})
    query.set_filter("scored", "plus(y) > 0", functions={"plus": PLUS}, dry_run=True)
    query.set_join("scored", "/t", {"k": "id"}, columns={"y": "plus(table.w)"}, functions={"plus": PLUS})
    kinds = [Kind.COLUMNS, Kind.FILTER, Kind.JOIN]
    for view, kind in zip(query.list(), kinds, strict=True):
        assert view.record.slot == (kind, "scored")
        assert view.record.change.functions == codes_of({"plus": PLUS})
    assert code_of(PLUS).python == PYTHON
    with pytest.raises(ConflictError, match="modification 1 of columns scored is on its way"):
        query.set_columns("scored", {"y": "y"})  # one set of columns, with functions or without


def test_a_rhino_that_does_not_know_functions_refuses_their_records(checkpoint: Path) -> None:
    """It knows four kinds, and finds a record of another one unreadable. See Modification.scala of that time."""
    query = Modifications(checkpoint)
    query.set_columns("scored", {"y": "plus(y)"}, functions={"plus": PLUS})
    assert record_of(checkpoint)["kind"] == "columns+functions"
    assert record_of(checkpoint)["kind"] not in tuple(Kind)
    query.remove("columns", "other")
    assert record_of(checkpoint, 2)["kind"] == "columns"


def test_a_record_of_before_functions_has_none(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_columns("scored", {"y": "y + 1"})
    fields = record_of(checkpoint)
    del fields["functions"]
    (checkpoint / "modifications" / "records" / "1").write_text(json.dumps(fields))
    assert query.get(1).record.change.functions == {}


@pytest.mark.parametrize(
    "damage",
    [{"functions": None}, {"functions": {"plus": {}}}, {"functions": {"plus": 7}}, {"kind": "sort+functions"}],
)
def test_a_damaged_record_is_named(damage: dict[str, Any], checkpoint: Path) -> None:
    Modifications(checkpoint).set_columns("scored", {"y": "plus(y)"}, functions={"plus": PLUS})
    with pytest.raises(IntegrityError, match="modification 1 is not readable"):
        Record.from_json(1, json.dumps(record_of(checkpoint) | damage))


def test_functions_of_every_kind_that_makes_one_value_of_a_row(checkpoint: Path) -> None:
    kinds = {
        "plain": PLUS,
        "series": pandas_udf(series, LongType()),
        "array": arrow_udf(array, LongType()),
        "batches": pandas_udf(iterating, LongType()),
    }
    call = " + ".join(f"{name}(y)" for name in kinds)
    Modifications(checkpoint).set_columns("scored", {"y": call}, functions=kinds)
    (view,) = Modifications(checkpoint).list()
    assert [code.eval_type for code in view.record.change.functions.values()] == [100, 200, 250, 204]


GROUPS = StructType([StructField("k", LongType())])
LARGE = udf(lambda value, large=bytes(CODE_MAX_BYTES // 2 + 1): value, LongType())


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"two words": PLUS}, "'two words': the name of a function in SQL"),
        ({"2plus": PLUS}, "no digit comes first"),
        ({"": PLUS}, "'': the name of a function in SQL"),
        ({"plus": PLUS, "Plus": PLUS}, "plus, Plus: SQL does not tell names apart by upper and lower case"),
        ({"a": LARGE, "b": LARGE}, rf"a, b have \d+ bytes together, and {CODE_MAX_BYTES} are allowed"),
        ({"plus": print}, "is no UDF"),
        ({"plus": PLUS.func}, "is no UDF"),
        ({"plus": udf(lambda value: value, LongType()).asNondeterministic()}, "non-deterministic"),
        (
            {"plus": state_function(lambda key, frames, state: frames, GROUPS)},
            "does not make one value of each row",
        ),
    ],
)
def test_what_sql_cannot_call_is_refused(functions: dict[str, Any], message: str, checkpoint: Path) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Modifications(checkpoint).set_columns("scored", {"y": "1"}, functions=functions)
    assert not (checkpoint / "modifications").exists()
