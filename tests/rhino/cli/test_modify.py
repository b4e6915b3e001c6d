import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino.cli.main import app
from rhino_core.errors import InvalidRequestError, InvalidSettingError
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.modify.modifications import Modifications

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
    answer(checkpoint, "bindings", 7, records=[1], bound_ms=1)
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


def test_a_refused_change_has_an_exit_code_and_a_reason(checkpoint: Path) -> None:
    Modifications(checkpoint).set_filter("other", "true")
    answer(checkpoint, "outcomes", 2, refused="the query has no point scored")
    code, said = rhino("modify", "columns", checkpoint, "scored", "--set", "y=y + 1", "--wait-s", "1")
    assert (code, said) == (3, "modification 2 of columns scored is refused: the query has no point scored\n")


def test_a_canary_is_recorded_with_its_limits_and_listed_with_its_figures(checkpoint: Path) -> None:
    limits = ("--canary", "2", "--max-batch-s", "0.5", "--min-rows", "10")
    code, _ = rhino("modify", "filter", checkpoint, "scored", "--where", "y > 0", *limits, "--wait-s", "0")
    assert code == 0
    answer(checkpoint, "outcomes", 1, checked_ms=1)
    answer(checkpoint, "bindings", 7, records=[1], bound_ms=1)
    answer(checkpoint, "figures", 7, batch_ms=220, timed=True, rows={"scored": 12})
    assert "canary  7-       1 of 2, up to 220 ms, 12 to 12 rows" in rhino("modifications", checkpoint)[1]
    answer(checkpoint, "returns", 7, **{"from": 9}, reason="batch 8 broke a limit")
    answer(checkpoint, "figures", 8, batch_ms=501, timed=True, rows={"scored": 11})
    said = rhino("modifications", checkpoint)[1]
    assert "returned  7-8      2 of 2, up to 501 ms, 11 to 12 rows" in said
    (found,) = json.loads(rhino("modifications", checkpoint, "--json")[1])
    assert found["canary"] == {"batches": 2, "max_batch_ms": 500, "min_rows": 10, "max_rows": None, "point": "scored"}
    assert found["figures"][0] == {"batch": 7, "batch_ms": 220, "rows": {"scored": 12}}


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
