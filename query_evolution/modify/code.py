"""Python functions of PySpark, as a record carries them. Only this module needs PySpark."""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
from pyspark.sql.types import DataType, StringType
from pyspark.util import PythonEvalType

from query_evolution.modify import comparer, variables
from query_evolution.modify.functions import CODE_MAX_BYTES, Code, check_functions
from rhino.testing import LocalCluster
from rhino_core.errors import InvalidRequestError
from spark_connector.local import session

SCALAR = (
    PythonEvalType.SQL_BATCHED_UDF,
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_ARROW_UDF,
)
PROCESSORS = (
    PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF,
    PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
)
PLAIN = SCALAR[:2]  # called with one row
OF_ROWS = (*SCALAR, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TEXT = StringType()
ANY = 2**31 - 1  # arguments
_STARTS: tuple[tuple[Any, str], ...] = (
    (SparkContext, "__init__"),
    (SparkSession.Builder, "getOrCreate"),
    (SparkSession.Builder, "create"),
    (DataStreamWriter, "start"),
    (DataStreamWriter, "toTable"),
    (session, "join"),
    (LocalCluster, "start"),
)
MODULE = "rhino_modification"  # no module of this name exists, so its functions are pickled with their code


def state_function(function: Callable[..., Any], output: DataType | str) -> Any:
    """Makes a function for `applyInPandasWithState` into an argument of `Modifications.replace_function`.

    `output` is its output schema, a `StructType`, or its text if a Spark session is active.
    """
    kind: Any = PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE
    return pandas_udf(function, returnType=output, functionType=kind)


def processor_function(
    processor: StatefulProcessor, output: DataType | str, *, time_mode: str = "None", pandas: bool = True
) -> Any:
    """Makes a processor for `transformWithState` into an argument of `Modifications.replace_function`.

    Its name in the query is `transformWithStateUDF`. `pandas`: for `transformWithStateInPandas`. `output`, `time_mode`:
    as the query gives them.
    """
    made = TransformWithStateInPandasUdfUtils(processor, time_mode).transformWithStateUDF
    kind: Any = PROCESSORS[0] if pandas else PROCESSORS[1]
    return pandas_udf(made, returnType=output, functionType=kind)


def code_of(function: Any) -> Code:
    """Pickles a UDF of `udf`, `pandas_udf`, `arrow_udf`, `state_function` or `processor_function` as PySpark does.

    Also one of Spark Connect: it is the same function without a session. Raises InvalidRequestError for anything else,
    and if it is not deterministic, cannot be pickled or is too large.
    """
    if not all(hasattr(function, name) for name in ("func", "returnType", "evalType", "deterministic")):
        raise InvalidRequestError(
            f"{function!r} is no UDF: make it with udf, pandas_udf, arrow_udf, state_function or processor_function"
        )
    name = getattr(function.func, "__name__", repr(function.func))
    if not function.deterministic:
        raise InvalidRequestError(f"{name} is declared as non-deterministic: a batch that is tried again would differ")
    try:
        returns = function.returnType
        pickled = bytes(CloudPickleSerializer().dumps((function.func, returns)))
    except Exception as error:  # any class's own __reduce__
        raise InvalidRequestError(f"{name} cannot be pickled: {error}") from error
    if len(pickled) > CODE_MAX_BYTES:
        raise InvalidRequestError(
            f"{name} has {len(pickled)} bytes with what it refers to, and {CODE_MAX_BYTES} are allowed: let it read "
            "large data from a file that the executors have"
        )
    takes = _takes(function.func) if function.evalType in SCALAR else None
    guard = _by_value(variables, variables.check) if function.evalType in PROCESSORS else b""
    return Code(pickled, function.evalType, returns.json(), takes, guard, PYTHON)


def codes_of(functions: Mapping[str, Any]) -> dict[str, Code]:
    """Pickles functions for calls by these names in SQL at a point, as `code_of`. Raises InvalidRequestError."""
    codes = {}
    for name, function in functions.items():
        code = code_of(function)
        if code.eval_type not in OF_ROWS:
            raise InvalidRequestError(
                f"{name} does not make one value of each row: at a point, give functions of udf, pandas_udf or "
                "arrow_udf"
            )
        codes[name] = code
    return check_functions(codes)


def comparer_of(code: Code) -> bytes | None:
    """Pickles the comparer of two functions of this kind. None: functions of this kind are not compared."""
    if code.eval_type not in SCALAR:
        return None
    made = comparer.row_comparer() if code.eval_type in PLAIN else comparer.column_comparer()
    return _by_value(comparer, made)


def _by_value(module: ModuleType, function: Callable[..., Any]) -> bytes:
    """Pickles a UDF of a module that returns a text. Executors need not have the module."""
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(CloudPickleSerializer().dumps((function, TEXT)))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _takes(function: Callable[..., Any]) -> tuple[int, int] | None:
    """Returns the least and the most positional arguments. None: Python does not know them, or one must be named."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return None
    most = ANY if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(places)
    return sum(p.default is p.empty for p in places), most


def load(source: str) -> Any:
    """Executes a file and returns an object of it: "FILE.py:NAME". Raises InvalidRequestError.

    The file cannot build a Spark session or start a query: it may be the application of the query.
    """
    file, _, name = source.rpartition(":")
    if not file or not name:
        raise InvalidRequestError(f"{source!r}: must be FILE.py:NAME")
    if not Path(file).is_file():
        raise InvalidRequestError(f"{file}: no such file")
    try:
        with _without_queries(source):
            found = runpy.run_path(file, run_name=MODULE)
    except InvalidRequestError:
        raise
    except PySparkException as error:
        raise InvalidRequestError(
            f"{file}: {error}. Here is no Spark session: give return types as objects, such as LongType()"
        ) from error
    except (Exception, SystemExit) as error:  # the user's code
        raise InvalidRequestError(f"{file} cannot be executed: {type(error).__name__}: {error}") from error
    if name not in found:
        raise InvalidRequestError(f"{file} has no {name}")
    return found[name]


@contextmanager
def _without_queries(source: str) -> Iterator[None]:
    file, _, name = source.rpartition(":")

    def refuse(*_: object, **__: object) -> None:
        raise InvalidRequestError(
            f"{file} builds a Spark session or starts a query while it is loaded. The whole file is executed to find "
            f'{name}: give {name} a file of its own, or put what starts the query below `if __name__ == "__main__":`'
        )

    former = [(owner, method, getattr(owner, method)) for owner, method in _STARTS]
    try:
        for owner, method in _STARTS:
            setattr(owner, method, refuse)
        yield
    finally:
        for owner, method, value in former:
            setattr(owner, method, value)
