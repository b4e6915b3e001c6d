"""Old against new, without Spark: rows, columns of pandas and of Arrow, errors, and the code that executors get."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import LongType, StructField, StructType

from query_evolution.modify.code import code_of, comparer_of, state_function
from query_evolution.modify.comparer import column_comparer, row_comparer, same
from query_evolution.modify.functions import Code


def header(old: Any, new: Any, rows: int) -> str:
    codes = {"old": code_of(old).pickled, "new": code_of(new).pickled}
    texts = {version: base64.b64encode(code).decode() for version, code in codes.items()}
    return json.dumps(texts | {"rows": rows})


def by_rows(old: Callable[..., Any], new: Callable[..., Any], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    compare = row_comparer()
    first = header(udf(old, LongType()), udf(new, LongType()), len(rows))
    answers = [compare(first if place == 0 else None, *row) for place, row in enumerate(rows)]
    assert answers[:-1] == [None] * (len(rows) - 1)
    return dict(json.loads(answers[-1] or ""))


def test_rows_that_differ_are_counted_and_the_first_five_are_shown() -> None:
    found = by_rows(lambda v: v + 1, lambda v: v + 1 if v < 90 else -v, [(value,) for value in range(100)])
    assert (found["rows"], found["different"]) == (100, 10)
    assert found["examples"] == [{"given": f"({v},)", "old": str(v + 1), "new": str(-v)} for v in range(90, 95)]
    assert found["old"]["failed"] == found["new"]["failed"] == 0
    assert found["old"]["us"] > 0


def test_the_time_is_that_of_a_row_without_the_first_call() -> None:
    def waits(value: int) -> int:
        import time

        time.sleep(0.5 if value == 0 else 0.002)
        return value

    found = by_rows(lambda value: value, waits, [(value,) for value in range(6)])
    assert 2_000 <= found["new"]["us"] < 100_000  # the first row would add 83 ms
    assert found["old"]["us"] < 2_000
    assert by_rows(lambda v: v, waits, [(0,)])["new"]["us"] is None


def test_an_error_is_a_difference_of_its_row_and_does_not_leave_the_comparison() -> None:
    def fails(value: int) -> int:
        if value % 2:
            raise ValueError(f"no {value}")
        return value

    found = by_rows(lambda value: value, fails, [(value,) for value in range(4)])
    assert (found["different"], found["new"]["failed"], found["new"]["error"]) == (2, 2, "ValueError: no 1")
    assert found["examples"][1] == {"given": "(3,)", "old": "3", "new": "ValueError: no 3"}
    assert by_rows(fails, fails, [(value,) for value in range(4)])["different"] == 0


def test_a_function_that_changes_its_arguments_does_not_change_those_of_the_other() -> None:
    def pops(values: list[int]) -> int:
        return values.pop()

    assert by_rows(pops, pops, [([1, 2],), ([3],)])["different"] == 0


def test_long_texts_are_cut() -> None:
    (example,) = by_rows(lambda text: text, lambda text: "", [("x" * 10_000,)])["examples"]
    assert max(map(len, example.values())) == 200


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (float("nan"), float("nan"), True),
        (None, 0, False),
        (None, None, True),
        ([1, 2], (1, 2), True),
        ([1, None], [1, 2], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": "1"}, False),
        (pd.Series([1]).to_numpy()[0], 1, True),
    ],
)
def test_what_is_the_same_for_spark(old: object, new: object, *, equal: bool) -> None:
    assert same(old, new, strict=True) is equal


def test_columns_of_pandas_and_arrow_are_compared_by_their_rows() -> None:
    def halves(values: pd.Series) -> pd.Series:
        return values.where(values < 8, -values) / 1  # floats: Spark makes BIGINT of both

    compare = column_comparer()
    first = header(pandas_udf(lambda v: v, LongType(), 200), pandas_udf(halves, LongType(), 200), 10)
    parts = [(pd.Series([first] + [None] * 5), pd.Series(range(6))), (pd.Series([None] * 4), pd.Series(range(6, 10)))]
    answers = [answer for part in parts for answer in compare(*part)]
    assert answers[:-1] == [None] * 9
    found = json.loads(answers[-1])
    assert (found["rows"], found["different"]) == (10, 2)
    assert found["examples"][0] == {"given": "(8,)", "old": "8", "new": "-8.0"}

    keeps, negates = (
        arrow_udf(lambda v: v, LongType(), 250),
        arrow_udf(lambda v: pa.array([None, -1]), LongType(), 250),
    )
    answer = column_comparer()(pa.array([header(keeps, negates, 2), None], pa.string()), pa.array([None, 1]))
    assert isinstance(answer, pa.Array)
    found = json.loads(answer.to_pylist()[-1])
    assert (found["different"], found["examples"]) == (1, [{"given": "(1,)", "old": "1", "new": "-1"}])


def test_a_result_that_is_no_column_of_the_rows_fails_for_all_of_them() -> None:
    short, none = (pandas_udf(function, LongType(), 200) for function in (lambda v: v[:1], lambda v: 7))
    answer = column_comparer()(pd.Series([header(short, none, 3), None, None]), pd.Series([1, 2, 3]))
    found = json.loads(answer.iloc[-1])
    assert (found["old"]["failed"], found["old"]["error"]) == (3, "ValueError: 1 values for 3 rows")
    assert (found["new"]["failed"], found["new"]["error"]) == (3, "TypeError: int is no column")


RUN = """
import base64, pickle, sys
compare, _ = pickle.loads(base64.b64decode(sys.stdin.readline()))
print(compare(sys.stdin.readline().strip(), 4))
assert not [name for name in sys.modules if name.startswith(("rhino", "spark_connector"))]
"""


def test_the_code_that_executors_get_needs_nothing_of_rhino() -> None:
    plain = udf(lambda value: value, LongType())
    code = comparer_of(code_of(plain))
    assert code is not None
    given = f"{base64.b64encode(code).decode()}\n{header(plain, udf(lambda value: -value, LongType()), 1)}\n"
    command = [sys.executable, "-c", RUN]
    ended = subprocess.run(command, input=given, cwd="/", env={}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["examples"] == [{"given": "(4,)", "old": "4", "new": "-4"}]


def test_functions_with_state_are_not_compared() -> None:
    rows = StructType([StructField("k", LongType())])
    assert comparer_of(code_of(state_function(lambda key, frames, state: frames, rows))) is None
    assert comparer_of(Code(eval_type=101)) is not None
