"""Blanks take the place of functions at a point while their first batch is prepared."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import LongType

from spark_connector.modify.code import code_of, codes_of

SERIES = pd.Series([1, 2, 3])
ARRAY = pa.array([1, 2, 3])
WITHOUT_RHINO = """
import pickle, sys
sys.modules["spark_connector"] = None
function, returns = pickle.loads(sys.stdin.buffer.read())
print([one.null_count for one in function(iter([(range(3), range(3))]))], returns.simpleString())
"""


def blank_of(function: Any) -> Any:
    (code,) = codes_of({"new": function}).values()
    made, returns = pickle.loads(code.blank)
    assert returns == LongType()
    return made


def series(values: pd.Series, more: pd.Series) -> pd.Series:
    raise AssertionError("a function of a user is not called")


def each_series(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    raise AssertionError("a function of a user is not called")


def array(values: pa.Array) -> pa.Array:
    raise AssertionError("a function of a user is not called")


def each_array(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
    raise AssertionError("a function of a user is not called")


def test_a_blank_of_rows_gives_nothing() -> None:
    assert blank_of(udf(lambda y, k: y + k, LongType()))(1, k=2) is None
    assert blank_of(udf(lambda: 1, LongType()))() is None
    assert blank_of(udf(lambda y: y, LongType(), useArrow=True))(1) is None


def test_a_blank_of_columns_gives_as_many_nulls_as_it_gets_rows() -> None:
    made = blank_of(pandas_udf(series, LongType()))
    for found in (made(SERIES, SERIES), made(values=SERIES, more=SERIES)):
        assert len(found) == 3
        assert found.isna().all()
    assert len(made(SERIES[:0], SERIES[:0])) == 0
    nulls = blank_of(arrow_udf(array, LongType()))(ARRAY)
    assert nulls.cast(pa.int64()).to_pylist() == [None] * 3


def test_a_blank_of_batches_answers_each_batch() -> None:
    found = list(blank_of(pandas_udf(each_series, LongType()))(iter([SERIES, SERIES[:2]])))
    assert [len(one) for one in found] == [3, 2]
    assert all(one.isna().all() for one in found)
    arrays = list(blank_of(arrow_udf(each_array, LongType()))(iter([(ARRAY, ARRAY)])))
    assert [one.to_pylist() for one in arrays] == [[None] * 3]


def test_executors_need_not_have_rhino() -> None:
    (code,) = codes_of({"new": arrow_udf(each_array, LongType())}).values()
    done = subprocess.run([sys.executable, "-c", WITHOUT_RHINO], input=code.blank, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == ["[3]", "bigint"]


def test_only_functions_at_a_point_have_one() -> None:
    assert code_of(pandas_udf(series, LongType())).blank == b""
