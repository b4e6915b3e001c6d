import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from query_evolution.modify.modifications import Modifications
from rhino.cli.main import app
from rhino_core.errors import InvalidRequestError, InvalidSettingError
from spark_connector.conf import PROVIDER_CLASSES

PROVIDER = {"spark.sql.streaming.stateStore.providerClass": PROVIDER_CLASSES["provider"]}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text('{"id": "5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{json.dumps({'conf': PROVIDER})}\n{{}}")
    return tmp_path


def rhino(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def answer(checkpoint: Path, kind: str, number: int, **fields: object) -> None:
    folder = checkpoint / "modifications" / kind
    folder.mkdir(exist_ok=True)
    (folder / str(number)).write_text(json.dumps(fields))


def test_a_change_is_recorded_and_listed(checkpoint: Path) -> None:
    assert rhino("modifications", checkpoint) == (0, "the query has no modifications\n")
    code, said = rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", "--wait-s", "0")
    assert (code, said) == (0, "modification 1 of filter scored is pending\n")
    answer(checkpoint, "outcomes", 1, checked_ms=1)
    answer(checkpoint, "bindings", 7, records=[1], replaces=[], bound_ms=1)
    code, said = rhino("modifications", checkpoint)
    assert code == 0
    assert said.splitlines()[0].split() == [
        "NUMBER",
        "STATE",
        "BATCHES",
        "CANARY",
        "KIND",
        "TARGET",
        "WHAT",
        "BY",
        "AT",
        "REASON",
    ]
    assert "in force  7-            -  filter  scored  y > 0" in said
    code, said = rhino("modifications", checkpoint, "--json")
    assert [(one["state"], one["first_batch"], one["condition"]) for one in json.loads(said)] == [
        ("in_force", 7, "y > 0")
    ]


def test_a_join_is_recorded_and_listed(checkpoint: Path) -> None:
    table = ("--table", "/tables/vip", "--format", "csv", "--schema", "id bigint, w int", "--option", "header=true")
    join = ("modify", "join", checkpoint, "scored", *table, "--on", "k=id", "--on", "r=region", "--wait-s", "0")
    code, said = rhino(*join, "--how", "inner", "--set", "y=y * table.w")
    assert (code, said) == (0, "modification 1 of join scored is pending\n")
    assert "inner /tables/vip on k=id and r=region, y=y * table.w" in rhino("modifications", checkpoint)[1]
    (found,) = json.loads(rhino("modifications", checkpoint, "--json")[1])
    assert (found["kind"], found["columns"]) == ("join", {"y": "y * table.w"})
    assert found["join"] == {
        "table": "/tables/vip",
        "format": "csv",
        "schema": "id bigint, w int",
        "options": {"header": "true"},
        "on": {"k": "id", "r": "region"},
        "how": "inner",
    }
    answer(checkpoint, "outcomes", 1, refused="no")
    assert rhino(*join, "--how", "left_anti")[1] == "modification 2 of join scored is pending\n"
    answer(checkpoint, "outcomes", 2, checked_ms=1)
    assert rhino("modify", "remove", checkpoint, "join", "other", "--wait-s", "0")[0] == 0
    for option in (("--on", "k"), ("--option", "header"), ("--on", "k=id")):
        with pytest.raises(InvalidRequestError, match=option[0]):
            rhino(*join, *option, "--how", "left_semi")


def test_a_refused_change_has_an_exit_code_and_a_reason(checkpoint: Path) -> None:
    Modifications(checkpoint).set_filter("other", "true")
    answer(checkpoint, "outcomes", 2, refused="the query has no point scored")
    code, said = rhino("modify", "columns", checkpoint, "scored", "--set", "y=y + 1", "--wait-s", "1")
    assert (code, said) == (3, "modification 2 of columns scored is refused: the query has no point scored\n")


def test_a_change_that_is_withdrawn_while_the_command_waits_has_an_exit_code(checkpoint: Path) -> None:
    Modifications(checkpoint).set_filter("other", "true")
    answer(checkpoint, "outcomes", 2, withdrawn=True, refused="withdrawn by ada@host")
    code, said = rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", "--wait-s", "1")
    assert (code, said) == (3, "modification 2 of filter scored is withdrawn: withdrawn by ada@host\n")


def test_a_canary_is_recorded_with_its_limits_and_listed_with_its_figures(checkpoint: Path) -> None:
    limits = ("--canary", "2", "--max-batch-s", "0.5", "--min-rows", "10")
    code, _ = rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", *limits, "--wait-s", "0")
    assert code == 0
    answer(checkpoint, "outcomes", 1, checked_ms=1)
    answer(checkpoint, "bindings", 7, records=[1], replaces=[], bound_ms=1)
    answer(checkpoint, "figures", 7, batch_ms=220, timed=True, rows={"scored": 12}, trials={"1": 1})
    assert "canary  7-       1 of 2, up to 220 ms, 12 to 12 rows" in rhino("modifications", checkpoint)[1]
    answer(checkpoint, "returns", 7, **{"from": 9}, reason="batch 8 broke a limit")
    answer(checkpoint, "figures", 8, batch_ms=501, timed=True, rows={"scored": 11}, trials={"1": 0})
    said = rhino("modifications", checkpoint)[1]
    assert "returned  7-8      2 of 2, up to 501 ms, 11 to 12 rows" in said
    (found,) = json.loads(rhino("modifications", checkpoint, "--json")[1])
    assert found["canary"] == {"batches": 2, "max_batch_ms": 500, "min_rows": 10, "max_rows": None, "point": "scored"}
    assert found["figures"][0] == {"batch": 7, "batch_ms": 220, "rows": {"scored": 12}}


FOUND = {
    "rows": 600,
    "different": 2,
    "old": {"failed": 0, "error": "", "us": 0.4},
    "new": {"failed": 1, "error": "ValueError: no 7", "us": None},
    "examples": [{"given": "(5,)", "old": "6", "new": "-5"}, {"given": "(7,)", "old": "8", "new": "ValueError: no 7"}],
}
NEW_SCORE = """
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

score = udf(lambda value: -value, LongType())
"""


def test_a_dry_run_of_a_function_shows_old_against_new_once(checkpoint: Path) -> None:
    (checkpoint / "new.py").write_text(NEW_SCORE)
    Modifications(checkpoint).set_filter("other", "true", dry_run=True)
    dry_run = ("modify", "function", checkpoint, "score", "--code", f"{checkpoint}/new.py:score", "--dry-run")
    for number, kind in ((2, "found"), (3, "found"), (4, "skipped")):
        answer(checkpoint, "outcomes", number, checked_ms=1)
        said = json.dumps(FOUND) if kind == "found" else "the batch has no rows at this function"
        answer(checkpoint, "comparisons", number, batch=17, **{kind: said})
    code, said = rhino(*dry_run, "--sample", "600")
    assert code == 0
    assert said.splitlines() == [
        "modification 2 of function score is checked",
        "2 of 600 rows of batch 17 differ",
        "old: 0.4 us a row; new: not timed, fails for 1 rows, first with ValueError: no 7",
        "ARGUMENTS  OLD  NEW",
        "(5,)         6  -5",
        "(7,)         8  ValueError: no 7",
    ]
    assert [
        view.record.sample is not None and view.record.sample.rows for view in Modifications(checkpoint).list()
    ] == [
        False,
        600,
    ]
    found = json.loads(rhino(*dry_run, "--json")[1])["comparison"]
    assert (found["rows"], found["different"], found["new"]["error"]) == (600, 2, "ValueError: no 7")
    assert "old and new were not compared: the batch has no rows at this function" in rhino(*dry_run)[1]
    assert not list((checkpoint / "modifications" / "comparisons").iterdir())
    with pytest.raises(InvalidRequestError, match="10001 rows of a sample: must be 1 to 10000"):
        rhino(*dry_run, "--sample", "10001")


def test_only_dry_runs_carry_what_compares(checkpoint: Path) -> None:
    (checkpoint / "new.py").write_text(NEW_SCORE)
    function = ("modify", "function", checkpoint, "score", "--code", f"{checkpoint}/new.py:score", "--wait-s", "0")
    rhino(*function, "--dry-run", "--sample", "0")
    rhino(*function)
    assert [view.record.sample for view in Modifications(checkpoint).list()] == [None, None]


def test_limits_need_a_canary(checkpoint: Path) -> None:
    with pytest.raises(InvalidRequestError, match="--canary"):
        rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", "--min-rows", "1")
    with pytest.raises(InvalidSettingError, match="--max-batch-s 0: must be a number of seconds, above 0"):
        rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", "--canary", "1", "--max-batch-s", "0")
    with pytest.raises(InvalidRequestError, match="-1 batches of a canary: must be 1 to"):
        rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", "--canary", "-1")
    assert not (checkpoint / "modifications").exists()


@pytest.mark.parametrize("pairs", [["y"], ["=1"], ["y=1", "y=2"]])
def test_malformed_columns_are_named(pairs: list[str], checkpoint: Path) -> None:
    options = [option for pair in pairs for option in ("--set", pair)]
    with pytest.raises(InvalidRequestError, match="--set"):
        rhino("modify", "columns", checkpoint, "scored", *options)
    assert not (checkpoint / "modifications").exists()


def test_functions_come_from_files_and_are_listed(checkpoint: Path) -> None:
    (checkpoint / "new.py").write_text(NEW_SCORE)
    columns = ("modify", "columns", checkpoint, "scored", "--set", "y=score2(y)", "--wait-s", "0")
    code, said = rhino(*columns, "--function", f"score2={checkpoint}/new.py:score")
    assert (code, said) == (0, "modification 1 of columns scored is pending\n")
    (view,) = Modifications(checkpoint).list()
    size = len(view.record.change.functions["score2"].pickled)
    assert f"columns  scored  y=score2(y) with score2 ({size} bytes)" in rhino("modifications", checkpoint)[1]
    (found,) = json.loads(rhino("modifications", checkpoint, "--json")[1])
    assert (found["kind"], found["functions"]) == ("columns", {"score2": {"code_bytes": size}})
    where = ("modify", "filter", checkpoint, "scored", "--where", "score2(y) > 0", "--wait-s", "0")
    assert rhino(*where, "--function", f"score2={checkpoint}/new.py:score")[0] == 0
    for option in ("score2", f"score2={checkpoint}/new.py", f"score2={checkpoint}/new.py:other"):
        with pytest.raises(InvalidRequestError, match=r"NAME=FILE\.py:NAME|must be FILE\.py:NAME|has no other"):
            rhino(*columns, "--function", option)


def test_a_class_of_a_jar_is_recorded_and_listed(checkpoint: Path) -> None:
    with zipfile.ZipFile(checkpoint / "new.jar", "w") as jar:
        jar.writestr("com/acme/Score.class", "code")
    size = (checkpoint / "new.jar").stat().st_size
    new = ("--jar", f"{checkpoint}/new.jar", "--class", "com.acme.Score")
    function = ("modify", "function", checkpoint, "score")
    code, said = rhino(*function, *new, "--wait-s", "0")
    assert (code, said) == (0, "modification 1 of function score is pending\n")
    (found,) = json.loads(rhino("modifications", checkpoint, "--json")[1])
    assert (found["kind"], found["jar"]["class"], found["jar"]["bytes"]) == ("function", "com.acme.Score", size)
    listed = f"function  score   com.acme.Score, jar {found['jar']['sha256'][:12]} of {size} bytes"
    assert listed in rhino("modifications", checkpoint)[1]
    answer(checkpoint, "outcomes", 2, checked_ms=1)
    assert rhino(*function, *new, "--dry-run", "--sample", "0")[1].splitlines() == [
        "modification 2 of function score is checked",
        "the executors have loaded its class, and called nothing",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "the new function is missing: give --code, or --jar and --class"),
        (("--jar", "a.jar"), "the new function is missing: give --code, or --jar and --class"),
        (("--class", "A"), "the new function is missing: give --code, or --jar and --class"),
        (("--code", "a.py:a", "--class", "A"), "--code is for a Python function, --jar and --class for one of Scala"),
        (("--code", "a.py:a", "--jar", "a.jar"), "--code is for a Python function, --jar and --class for one of Scala"),
        (("--jar", "/nowhere.jar", "--class", "A"), "the jar /nowhere.jar cannot be read"),
    ],
)
def test_a_new_function_is_of_python_or_of_a_jar(given: tuple[str, ...], message: str, checkpoint: Path) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        rhino("modify", "function", checkpoint, "score", *given)
    assert not (checkpoint / "modifications").exists()
