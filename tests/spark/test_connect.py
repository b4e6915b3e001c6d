"""Queries that clients of a Spark Connect server run: their checks and changes are those of any other query.

What counts is the plan that the server has. Executors keep files and classes of such sessions apart.
"""

from __future__ import annotations

import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect import session as connect_session
from pyspark.sql.types import LongType

from query_evolution import FileSink, Modifications, rebuild, shadow, sketch
from query_evolution.modify.ledger import View
from rhino.testing import LocalCluster
from rhino_core.errors import PreconditionError
from tests.spark.conftest import SharedSession, wait_for
from tests.spark.joined import bonuses, joined_rows, write
from tests.spark.modified import POINT, functions
from tests.spark.queries import ROWS_PER_BATCH, source
from tests.spark.run import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
ROOT = Path(__file__).parents[2]
ON = {"k": "id"}
ADDS = {"y": "y + coalesce(table.bonus, 7)"}
PLAIN = "250 milliseconds"


@contextmanager
def connect_server(spark: SparkSession, *, apart: bool = True) -> Iterator[str]:
    """A Spark Connect server in the driver of the session. Yields its address.

    `apart`: executors keep files of its sessions apart, as with a server of its own. PySpark turns that off for its
    drivers.
    """
    jvm: Any = spark._jvm
    conf = spark._jsc.sc().conf()
    settings = {"spark.sql.artifact.isolation.enabled": str(apart).lower(), "spark.connect.grpc.binding.port": "0"}
    before = {key: conf.get(key, None) for key in settings}
    for key, value in settings.items():
        conf.set(key, value)
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())
        for key, value in before.items():
            conf.remove(key) if value is None else conf.set(key, value)


class Client:
    """Context manager: a client in a process of its own, whose query runs."""

    def __init__(self, address: str, folder: Path, *files: Path, trigger: str = PLAIN) -> None:
        """`files`: Python files that it adds before it starts the query."""
        self.checkpoint, self.output = folder / "checkpoint", folder / "output"
        self._arguments = [address, str(self.checkpoint), str(self.output), trigger, *map(str, files)]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.spark.connect_app", *self._arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("started")
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.kill()  # does nothing after its end
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            self._pipe(pipe).close()

    def add(self, file: Path) -> None:
        """As a Python file of the session."""
        print(file, file=self._pipe(self._process.stdin), flush=True)
        self._expect("added")

    def stop(self) -> int:
        """Stops the query and the client. Returns how many batches are committed."""
        self._pipe(self._process.stdin).close()
        self._expect("stopped")
        assert self._process.wait(60) == 0
        return self.committed() + 1

    def committed(self) -> int:
        """The newest batch, or -1."""
        commits = self.checkpoint / "commits"
        names = [path.name for path in commits.iterdir()] if commits.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def advance(self, batches: int) -> None:
        goal = self.committed() + batches
        wait_for(lambda: self.committed() >= goal, f"batch {goal}")

    def rows(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self.output)).select("k", "value", "y")

    def _expect(self, word: str) -> None:
        assert self._pipe(self._process.stdout).readline() == f"{word}\n"

    def _pipe(self, its: IO[str] | None) -> IO[str]:
        assert its is not None
        return its


def in_force(changes: Modifications, view: View) -> View:
    """Waits for a modification."""
    ended = changes.wait(view.record.number)
    assert ended.state == "in_force", ended.reason
    return ended


def module(folder: Path, name: str, factor: int) -> Path:
    """A Python file with a function `scaled`. This process, and no executor, can import it."""
    source = f"def scaled(value: int) -> int:\n    return value * {factor}\n"
    made = types.ModuleType(name)
    exec(source, made.__dict__)
    sys.modules[name] = made
    file = folder / f"{name}.py"
    file.write_text(source)
    return file


def imported(name: str) -> Any:
    """A UDF that is pickled by its name, and not with its code."""
    return F.udf(sys.modules[name].scaled, LongType())


def assert_not_found(changes: Modifications, name: str) -> None:
    """The executors cannot import the module."""
    bad = changes.wait(changes.replace_function("score", imported(name)).record.number)
    assert (bad.state, f"No module named '{name}'" in bad.reason) == ("refused", True), bad.reason


def test_a_query_of_a_spark_connect_session(shared: SharedSession, tmp_path: Path) -> None:
    """Batches do not see the file that the client has added, see `modify.md`: the check says so, and they go on."""
    added = module(tmp_path, "rhino_added", 3)
    with shared.with_settings(SETTINGS) as spark, connect_server(spark) as address:
        with Client(address, tmp_path, added) as client:
            client.advance(2)
            query = Modifications(client.checkpoint)
            bad = query.wait(query.replace_function("score", functions()["whole"]).record.number)
            assert (bad.state, "returns BIGINT" in bad.reason) == ("refused", True), bad.reason
            assert_not_found(query, added.stem)
            good = in_force(query, query.replace_function("score", functions()["minus"]))
            client.advance(1)
            batches = client.stop()
        written = client.rows(spark).collect()
    assert good.first_batch is not None
    switched = ROWS_PER_BATCH * good.first_batch
    assert len(written) == ROWS_PER_BATCH * batches > switched > 0
    assert not [row for row in written if row.y != (row.value + 1 if row.value < switched else -row.value)]


def test_filter_join_and_columns_of_a_spark_connect_session(shared: SharedSession, tmp_path: Path) -> None:
    """One after the other, then all of them gone again. A dry run changes nothing. The table is read once."""
    with shared.with_settings(SETTINGS) as spark, connect_server(spark) as address:
        table, added = tmp_path / "table", bonuses(spark, 1_000_000)
        write(added, table)
        with Client(address, tmp_path, trigger="1 second") as client:
            client.advance(2)
            changes, tables = Modifications(client.checkpoint), {}
            dry = changes.wait(changes.set_join(POINT, str(table), ON, columns=ADDS, dry_run=True).record.number)
            assert dry.state == "checked", dry.reason
            in_force(changes, changes.set_filter(POINT, "k < 60 and y % 5 > 0"))
            for how, columns in (("left", ADDS), ("left_anti", {}), ("inner", ADDS)):
                asked = changes.set_join(POINT, str(table), ON, how=how, columns=columns)
                tables[in_force(changes, asked).record.number] = added
                client.advance(1)
            write(bonuses(spark, 5), table)  # another content at the same place
            in_force(changes, changes.set_columns(POINT, {"y": "y * 2 + value"}))
            client.advance(1)
            for kind in ("filter", "join", "columns"):
                in_force(changes, changes.remove(kind, POINT))
            client.advance(1)
            batches = client.stop()
        kept = {path.name for path in (client.checkpoint / "modifications" / "tables").iterdir()}
        assert kept == {str(number) for number in tables}
        expected = joined_rows(spark, batches, changes.list(), tables)
        assert_same_rows(client.rows(spark), expected.select("k", "value", "y"))


def test_state_is_rebuilt_from_a_query_of_a_spark_connect_session(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    """By a session in a driver. Rows of a client are refused: its code runs elsewhere."""
    with shared.with_settings(SETTINGS) as spark, connect_server(spark) as address:
        with Client(address, tmp_path) as client:
            client.advance(3)
            client.stop()
        rebuilt = tmp_path / "rebuilt"
        new = source(spark).groupBy("value").count()
        done = rebuild(cluster.manager, new, client.checkpoint, rebuilt, output_mode="update", batches=2)
        assert (done.first, done.batch) == (0, 1)
        remote = connect_session.SparkSession.builder.remote(address).create()
        rows: Any = remote.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        made = tmp_path / "made"
        for call in (
            lambda: rebuild(cluster.manager, rows, client.checkpoint, made),
            lambda: sketch(rows, client.checkpoint, made),
            lambda: shadow(rows, client.checkpoint, made, FileSink(client.output)),
        ):
            with pytest.raises(PreconditionError, match="a DataFrame of Spark Connect: make them with a session in"):
                call()
        assert not made.exists()
        remote.stop()


def test_code_that_imports_what_a_client_has_added(shared: SharedSession, tmp_path: Path) -> None:
    """Where the sessions of a server share their files, they may come while the query runs. An archive may not."""
    file, archived = (module(tmp_path, f"rhino_shared_{factor}", factor) for factor in (3, 5))
    archive = tmp_path / "rhino_shared.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(archived, archived.name)
    with shared.with_settings(SETTINGS) as spark, connect_server(spark, apart=False) as address:
        with Client(address, tmp_path) as client:
            client.advance(2)
            changes = Modifications(client.checkpoint)
            assert_not_found(changes, file.stem)
            client.add(file)
            dry = changes.wait(changes.replace_function("score", imported(file.stem), dry_run=True).record.number)
            assert dry.state == "checked", dry.reason
            compared = changes.take_comparison(dry.record.number)
            assert compared is not None
            assert compared.new.failed == 0, compared
            assert compared.different == compared.rows > 0
            good = in_force(changes, changes.replace_function("score", imported(file.stem)))
            client.advance(1)
            client.add(archive)
            assert_not_found(changes, archived.stem)
            batches = client.stop()
        written = client.rows(spark).collect()
    assert good.first_batch is not None
    switched = ROWS_PER_BATCH * good.first_batch
    assert len(written) == ROWS_PER_BATCH * batches > switched > 0
    assert not [row for row in written if row.y != (row.value + 1 if row.value < switched else row.value * 3)]
