import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.functions import udf as connect_udf
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType, StructField, StructType

from query_evolution.modify import folder as folder_module
from query_evolution.modify.code import ANY, code_of, load, state_function
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.functions import CODE_MAX_BYTES
from query_evolution.modify.join import How, Join, StaticTable
from query_evolution.modify.ledger import State
from query_evolution.modify.modifications import Modifications
from query_evolution.modify.record import Canary, Change, Kind
from rhino_core import failpoints
from rhino_core.errors import (
    AccessDeniedError,
    ConflictError,
    IntegrityError,
    InvalidRequestError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino_core.foreign import numbers
from spark_connector.conf import SPARK_PROVIDER
from spark_connector.facts import create_fact
from tests import forked
from tests.query_evolution.modify.conftest import offsets
from tests.query_evolution.support.modifications import ROOT

PLUS = udf(lambda value: value + 1, LongType())


def driver(checkpoint: Path, kind: str, number: int, **fields: object) -> None:
    """A file as the driver writes it."""
    folder = checkpoint / "modifications" / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(number)).write_text(json.dumps(fields))


def test_records_have_all_that_was_asked_for(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.replace_function("score", PLUS)
    query.set_filter("scored", "y > 0", dry_run=True)
    query.set_columns("scored", {"y": "y + 1"})
    query.remove("filter", "scored")
    function, condition, columns, removal = (view.record for view in query.list())
    assert (function.number, function.change.target, function.change.code.eval_type) == (1, "score", 100)
    assert (condition.change.condition, condition.dry_run) == ("y > 0", True)
    assert columns.change.columns == {"y": "y + 1"}
    assert (removal.change.removes, removal.slot) == (True, (Kind.FILTER, "scored"))
    assert "@" in function.author


def test_only_this_user_reads_and_writes_records(checkpoint: Path) -> None:
    former = os.umask(0o002)
    try:
        Modifications(checkpoint).set_filter("scored", "y > 0")
    finally:
        os.umask(former)
    folder = checkpoint / "modifications"
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "records", folder / "records" / "1")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_checkpoint_that_others_can_write_gets_no_modifications(checkpoint: Path) -> None:
    checkpoint.chmod(0o777)
    with pytest.raises(AccessDeniedError, match=f"can write to {checkpoint}, .* run chmod go-w {checkpoint}"):
        Modifications(checkpoint).set_filter("scored", "y > 0")
    checkpoint.chmod(0o755)
    assert Modifications(checkpoint).set_filter("scored", "y > 0").record.number == 1


def test_a_record_that_others_could_have_written_is_not_shown(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0")
    (checkpoint / "modifications" / "records" / "1").chmod(0o662)
    with pytest.raises(AccessDeniedError, match="its mode 662 lets others write to it"):
        query.list()


@pytest.mark.parametrize("kind", ["outcomes", "bindings"])
def test_a_record_is_the_one_that_the_driver_has_checked(checkpoint: Path, kind: str) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0")
    record = checkpoint / "modifications" / "records" / "1"
    digest = hashlib.sha256(record.read_bytes()).hexdigest()
    driver(checkpoint, "outcomes", 1, checked_ms=1, **({"sha256": digest} if kind == "outcomes" else {}))
    driver(checkpoint, "bindings", 5, records=[1], replaces=[], **({"sha256": [digest]} if kind == "bindings" else {}))
    assert query.get(1).state is State.IN_FORCE
    record.write_text(record.read_text().replace("y > 0", "y < 0"))
    with pytest.raises(IntegrityError, match="records/1 is not the record that the driver has checked"):
        query.get(1)


def test_a_bound_record_that_is_missing_is_named(checkpoint: Path) -> None:
    driver(checkpoint, "bindings", 5, records=[3], replaces=[])
    with pytest.raises(IntegrityError, match="records/3 is missing"):
        Modifications(checkpoint).list()


def test_a_reader_beside_a_driver_finds_no_contradiction(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver decides about a new record and binds it while any of the folders is being listed."""
    query, first = Modifications(checkpoint), numbers
    query.set_filter("scored", "y > 0")

    def listed(folder: Path) -> list[int]:
        found = first(folder)
        number = len(first(checkpoint / "modifications" / "records"))
        driver(checkpoint, "outcomes", number, checked_ms=1)
        driver(checkpoint, "bindings", number + 4, records=[number], replaces=[*range(1, number)])
        create_fact(checkpoint / "modifications" / "records", number + 1, its)
        return found

    its = (checkpoint / "modifications" / "records" / "1").read_text()
    monkeypatch.setattr(folder_module, "numbers", listed)
    views = query.list()
    assert len(views) >= 4
    assert {view.state for view in views} <= {State.PENDING, State.ACCEPTED, State.IN_FORCE, State.REPLACED}


def test_the_record_of_a_join_says_which_table_and_how(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    table = StaticTable("/tables/vip.csv", "csv", "id bigint, factor int", {"header": "true"})
    query.set_join("scored", table, {"k": "id", "r": "region"}, columns={"y": "y * coalesce(table.factor, 1)"})
    query.set_join("other", "hdfs://namenode/tables/vip", {"k": "id"}, how="left_anti", dry_run=True)
    query.remove("join", "third")
    first, second, removal = (view.record for view in query.list())
    assert first.change == Change(
        Kind.JOIN,
        "scored",
        columns={"y": "y * coalesce(table.factor, 1)"},
        join=Join(table, {"k": "id", "r": "region"}, How.LEFT),
    )
    assert first.slot == (Kind.JOIN, "scored")
    assert second.change.join == Join(StaticTable("hdfs://namenode/tables/vip"), {"k": "id"}, How.LEFT_ANTI)
    assert (removal.change.removes, removal.change.join) == (True, None)
    with pytest.raises(ConflictError, match="modification 1 of join scored is on its way"):
        query.set_join("scored", table, {"k": "id"}, how="left_semi")


def test_a_record_of_before_joins_has_none(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0")
    path = checkpoint / "modifications" / "records" / "1"
    fields = json.loads(path.read_text())
    del fields["join"]
    path.write_text(json.dumps(fields))
    assert query.get(1).record.change.join is None
    fields["join"] = {"table": "/t", "format": "csv", "schema": "", "options": {}, "on": {"k": "id"}, "how": "cross"}
    path.write_text(json.dumps(fields))
    with pytest.raises(IntegrityError, match="modification 1 is not readable"):
        query.get(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": "tables/vip"}, "'tables/vip': must be an absolute path or a URI"),
        ({"how": "cross"}, "join 'cross': must be one of inner, left, left_semi, left_anti"),
        ({"on": {}}, "needs columns of the point and of the table"),
        ({"on": {"k": " "}}, "needs columns of the point and of the table"),
        ({"how": "left_semi"}, "a left_semi join gives no columns of the table"),
        ({"columns": {}}, "a left join without new values of columns changes nothing"),
        ({"columns": {"y": " "}}, "column y is empty"),
    ],
)
def test_what_cannot_be_a_join_is_refused(given: dict[str, Any], message: str, checkpoint: Path) -> None:
    join: dict[str, Any] = {"table": "/tables/vip", "on": {"k": "id"}, "columns": {"y": "table.factor"}, **given}
    with pytest.raises(InvalidRequestError, match=message):
        Modifications(checkpoint).set_join("scored", **join)
    assert not (checkpoint / "modifications").exists()


def test_a_table_in_a_format_that_rhino_does_not_take_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="format 'xls' of a table: must be one of parquet, orc, csv, json"):
        StaticTable("/tables/vip", "xls")


def test_a_location_is_a_folder_here(checkpoint: Path) -> None:
    for location in (checkpoint, f"file://{checkpoint}", f"rhino://file{checkpoint}"):
        assert Modifications(location).list() == ()
    for location in ("hdfs://namenode:8020/q", "rhino://hdfs@namenode:8020/q", "s3a://bucket/q"):
        with pytest.raises(InvalidRequestError, match="must be a folder on this machine"):
            Modifications(location)
    with pytest.raises(UnknownError, match="no query checkpoint"):
        Modifications(checkpoint / "offsets")


def test_a_query_without_rhino_is_refused(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "5").write_text(offsets("org.example.Provider"))
    with pytest.raises(PreconditionError, match=r"org\.example\.Provider, without Rhino"):
        Modifications(checkpoint)


@pytest.mark.parametrize("name", ["0/0/5_3f.changelog", "0/0/5.zip", "1/7/left-keys/5_3f.zip"])
def test_a_query_with_its_own_state_in_the_folder_is_not_on_rhino(name: str, checkpoint: Path) -> None:
    (checkpoint / "offsets" / "4").write_text(offsets(SPARK_PROVIDER))
    file = checkpoint / "state" / name
    file.parent.mkdir(parents=True)
    file.with_name("4_3f.changelog").touch()  # of the time before it was adopted
    file.with_name("51.zip").touch()
    assert Modifications(checkpoint).list() == ()
    file.touch()
    with pytest.raises(PreconditionError, match="without Rhino; `rhino adopt` takes it over"):
        Modifications(checkpoint)
    assert Modifications(f"rhino://file{checkpoint}").list() == ()


def test_a_second_change_of_the_same_thing_waits_for_the_first_one(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0")
    with pytest.raises(ConflictError, match="modification 1 of filter scored is on its way"):
        query.set_filter("scored", "y > 1")
    driver(checkpoint, "outcomes", 1, refused="no point scored")
    assert query.set_filter("scored", "y > 1").record.number == 2


def test_two_writers_never_have_the_same_number(checkpoint: Path) -> None:
    folder = ModificationFolder(checkpoint)

    def write(name: str) -> None:
        for index in range(20):
            folder.add(Change(Kind.FILTER, f"{name}{index}", condition="true"), name, dry_run=False)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = folder.read().records
    assert sorted(found) == list(range(1, 61))
    assert len({record.change.target for record in found.values()}) == 60
    assert not list((checkpoint / "modifications" / "records").glob(".*"))


def test_waiting_ends_with_the_fate_of_a_modification(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    number = query.set_filter("scored", "y > 0").record.number
    with pytest.raises(UnavailableError, match=r"still pending after 0\.1 s: no driver"):
        query.wait(number, timeout_s=0.1)
    driver(checkpoint, "outcomes", number, checked_ms=1)
    with pytest.raises(UnavailableError, match="has begun no batch"):
        query.wait(number, timeout_s=0.1)
    driver(checkpoint, "bindings", 5, records=[number], replaces=[], bound_ms=2)
    assert query.wait(number, timeout_s=0.1).first_batch == 5
    with pytest.raises(UnknownError, match="no modification 9"):
        query.get(9)


def test_a_dry_run_that_compares_waits_for_the_batch_that_runs(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    number = query.replace_function("score", PLUS, dry_run=True, sample=7).record.number
    sample = query.get(number).record.sample
    assert sample is not None
    assert sample.rows == 7
    with pytest.raises(UnavailableError, match="waits for the end of the batch that runs"):
        query.wait(number, timeout_s=0.1)
    assert query.take_comparison(number) is None
    driver(checkpoint, "comparisons", number, batch=4, found="{}")
    with pytest.raises(IntegrityError, match="the comparison of a dry run is not readable"):
        query.take_comparison(number)


def test_what_no_driver_has_checked_can_be_withdrawn(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    number = query.set_filter("scored", "y > 0").record.number
    assert query.withdraw(number).state == "withdrawn"
    with pytest.raises(ConflictError, match="checked already"):
        query.withdraw(number)


def test_what_makes_a_stopped_query_fail_can_be_withdrawn(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    number = query.set_filter("scored", "y > 0").record.number
    driver(checkpoint, "outcomes", number, checked_ms=1)
    driver(checkpoint, "bindings", 3, records=[number], replaces=[], bound_ms=2)
    view = query.withdraw(number)
    assert (view.state, "withdrawn by" in view.reason) == ("returned", True)
    assert (view.first_batch, view.last_batch) == (3, 4)  # batch 4 is committed


def test_what_is_in_force_in_a_running_query_is_not_withdrawn(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    number = query.set_filter("scored", "y > 0").record.number
    driver(checkpoint, "outcomes", number, checked_ms=1)
    driver(checkpoint, "bindings", 5, records=[number], replaces=[], bound_ms=2)
    (checkpoint / "offsets" / "5").write_text((checkpoint / "offsets" / "4").read_text())
    with pytest.raises(PreconditionError, match="a driver may be running the query"):
        query.withdraw(number)


def test_what_is_in_force_is_withdrawn_only_with_the_right_to_run(checkpoint: Path) -> None:
    """A running query may have had no new data for long, and its driver has read what is in force."""
    query = Modifications(checkpoint)
    number = query.set_filter("scored", "y > 0").record.number
    driver(checkpoint, "outcomes", number, checked_ms=1)
    driver(checkpoint, "bindings", 3, records=[number], replaces=[], bound_ms=2)
    lock = checkpoint / "restarts" / "locks" / "run"
    lock.parent.mkdir(parents=True)
    lock.write_text('{"pid": 7, "user": "ada", "host": "here", "says": "unsupervised"}')
    takes = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.lockf(file, 2)\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", takes, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        with pytest.raises(PreconditionError, match="process 7 of user ada on here runs the query"):
            query.withdraw(number)
        assert query.get(number).state == "in_force"
        running.communicate(b"\n")
    assert query.withdraw(number).state == "returned"


def test_a_canary_counts_rows_at_the_point_that_changes_or_at_one_that_is_given(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0", canary=Canary(3, min_rows=1))
    (view,) = query.list()
    assert view.record.canary == Canary(3, min_rows=1, point="scored")
    with pytest.raises(InvalidRequestError, match="needs the point where they are counted"):
        query.replace_function("score", PLUS, canary=Canary(3, max_rows=9))
    number = query.replace_function("score", PLUS, canary=Canary(3, max_rows=9, point="scored")).record.number
    driver(checkpoint, "outcomes", number, checked_ms=1)
    driver(checkpoint, "bindings", 5, records=[number], replaces=[], bound_ms=2)
    with pytest.raises(UnavailableError, match=r"still canary after 0\.1 s: 0 of the 3 batches of its canary"):
        query.wait(number, timeout_s=0.1)


@pytest.mark.parametrize(
    "limits", [{"batches": 0}, {"batches": 1, "max_batch_ms": 0}, {"batches": 1, "min_rows": 9, "max_rows": 8}]
)
def test_a_canary_without_sense_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="of a canary"):
        Canary(**limits)


COMMAND = """
import os, sys
from rhino_core import failpoints
from query_evolution.modify.modifications import Modifications
failpoints.arm(os.environ)
query = Modifications(sys.argv[1])
query.withdraw(query.set_filter("scored", "y > 0").record.number)
"""
STATES = {
    "modification.record.before": [],
    "modification.record.after": ["pending"],
    "modification.withdraw.before": ["pending"],
    "modification.withdraw.after": ["withdrawn"],
}


@pytest.mark.parametrize("point", STATES)
def test_a_command_that_dies_leaves_a_whole_record_or_none(point: str, checkpoint: Path) -> None:
    env = {**os.environ, failpoints.VARIABLE: f"{point}=kill"}
    ended = forked.run(COMMAND, str(checkpoint), env=env)
    assert ended.returncode == -signal.SIGKILL
    query = Modifications(checkpoint)
    assert [str(view.state) for view in query.list()] == STATES[point]
    for view in query.list():
        if view.state == "pending":
            query.withdraw(view.record.number)
    assert query.set_filter("scored", "y > 1").state == "pending"


def test_every_failpoint_of_a_modification_marks_one_place() -> None:
    drivers = (ROOT / "query_evolution" / "scala" / "modify").rglob("*.scala")
    used = re.findall(r'Failpoints\.around\("(\w+)"\)', "".join(path.read_text() for path in drivers))
    names = [f"modification.{step}.{when}" for step in used for when in ("before", "after")]
    of_jars = ["modification.jar.before", "modification.jar.after"]  # test_jars.py
    assert sorted([*names, *STATES, *of_jars]) == sorted(n for n in failpoints.NAMES if n.startswith("modification."))


def test_an_unreadable_file_is_named(checkpoint: Path) -> None:
    query = Modifications(checkpoint)
    query.set_filter("scored", "y > 0")
    (checkpoint / "modifications" / "records" / "1").write_text("{")
    with pytest.raises(IntegrityError, match="modification 1 is not readable"):
        query.list()


@pytest.mark.parametrize("change", [("set_filter", " "), ("set_columns", {}), ("set_columns", {"y": ""})])
def test_empty_texts_are_refused(change: tuple[str, object], checkpoint: Path) -> None:
    name, value = change
    with pytest.raises(InvalidRequestError, match=r"empty|no columns"):
        getattr(Modifications(checkpoint), name)("scored", value)
    assert not (checkpoint / "modifications").exists()


def test_a_kind_that_is_none_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidRequestError, match="kind 'map': must be one of function, filter, join, columns"):
        Modifications(checkpoint).remove("map", "scored")


# ---- code


def test_code_is_what_pyspark_pickles() -> None:
    code = code_of(PLUS)
    assert (code.eval_type, code.returns, code.takes) == (100, '"long"', (1, 1))
    assert code_of(udf(lambda a, b=1: a + b, LongType())).takes == (1, 2)
    assert code_of(udf(lambda *values: 1, LongType())).takes == (0, ANY)
    assert code_of(udf(lambda value, *, by: 1, LongType())).takes is None
    schema = StructType([StructField("k", LongType())])
    assert code_of(state_function(lambda key, frames, state: frames, schema)).eval_type == 208


def test_a_function_of_spark_connect_is_the_same_function() -> None:
    def plus(value: int) -> int:
        return value + 1

    assert code_of(connect_udf(plus, LongType())) == code_of(udf(plus, LongType()))


def test_what_is_no_usable_function_is_refused() -> None:
    large = bytes(CODE_MAX_BYTES)
    lock = threading.Lock()
    with pytest.raises(InvalidRequestError, match="is no UDF"):
        code_of(print)
    with pytest.raises(InvalidRequestError, match="allowed: let it read large data from a file"):
        code_of(udf(lambda value: len(large), LongType()))
    with pytest.raises(InvalidRequestError, match="cannot be pickled"):
        code_of(udf(lambda value: lock.locked(), LongType()))
    with pytest.raises(InvalidRequestError, match="non-deterministic"):
        code_of(udf(lambda value: value, LongType()).asNondeterministic())
    with pytest.raises(InvalidRequestError, match="non-deterministic"):
        code_of(udf(functools.partial(max, 1), LongType()).asNondeterministic())


def test_a_function_is_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text(
        "from pyspark.sql.functions import udf\nfrom pyspark.sql.types import LongType\n"
        "FACTOR = 3\n\n@udf(LongType())\ndef score(value):\n    return value * FACTOR\n"
    )
    code = code_of(load(f"{file}:score"))
    assert b"rhino_modification" in code.pickled
    for source, message in ((f"{file}:other", "has no other"), ("score.py", "must be FILE.py:NAME")):
        with pytest.raises(InvalidRequestError, match=message):
            load(source)
    with pytest.raises(InvalidRequestError, match="no such file"):
        load(f"{tmp_path}/nothing.py:score")
    file.write_text("raise ValueError('no')")
    with pytest.raises(InvalidRequestError, match="cannot be executed: ValueError: no"):
        load(f"{file}:score")
    file.write_text("import sys\nsys.exit('no')")
    with pytest.raises(InvalidRequestError, match="cannot be executed: SystemExit: no"):
        load(f"{file}:score")


@pytest.mark.parametrize(
    "started",
    [
        "SparkSession.builder.appName('counts').getOrCreate()",
        "SparkSession.builder.remote('sc://127.0.0.1:1').getOrCreate()",
        "SparkContext('local')",
        "DataStreamWriter.start(None, path='/out')",
        "local_session(data_dir='/nowhere')",
        "LocalCluster(Path('/nowhere')).start()",
    ],
)
def test_an_application_is_not_started_to_load_a_function_of_it(
    started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    file, after = tmp_path / "app.py", tmp_path / "after"
    file.write_text(f"""
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rhino import local_session
from rhino.testing import LocalCluster
def score(value): return value
if __name__ == "__main__":
    Path("{after}").touch()
{started}
Path("{after}").touch()
""")
    with pytest.raises(InvalidRequestError, match=r"app.py builds a Spark session or.* give score a file"):
        load(f"{file}:score")
    assert not after.exists()
    file.write_text(file.read_text().replace(started, f"if __name__ == '__main__': {started}"))
    assert load(f"{file}:score")(1) == 1
    assert SparkSession.Builder.getOrCreate.__name__ == "getOrCreate", "sessions can be built again"
