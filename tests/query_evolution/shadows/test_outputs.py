"""Which files the file sink has written in a batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from query_evolution.shadows.comparing import CompareRules
from query_evolution.shadows.outputs import FileSink, Written, live_output
from rhino_core.errors import InvalidRequestError, PreconditionError
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark_connector.support.checkpoint import make


@pytest.fixture
def live(tmp_path: Path) -> QueryCheckpoint:
    return make(tmp_path / "q", {"0": [["a"]]})


def entry(folder: Path, name: str, *files: str) -> None:
    log = folder / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:/out/{file}", "size": 1, "action": "add"}) for file in files]
    (log / name).write_text("\n".join(["v1", *lines]))


def test_each_batch_has_its_own_files_also_beside_compactions(tmp_path: Path, live: QueryCheckpoint) -> None:
    sink = FileSink(tmp_path)
    with pytest.raises(PreconditionError, match="no output folder of Spark's file sink"):
        sink.check(live)
    entry(tmp_path, "0", "a")
    entry(tmp_path, "1", "b", "x%3D1")
    entry(tmp_path, "2.compact", "a", "b", "x%3D1", "c")
    entry(tmp_path, "3")
    entry(tmp_path, "4", "d")
    entry(tmp_path, "5.compact", "a", "b", "x%3D1", "c", "d", "e", "f")
    sink.check(live)
    assert [[path.removeprefix("file:/out/") for path in sink.paths(batch)] for batch in range(6)] == [
        ["a"],
        ["b", "x=1"],
        ["c"],
        [],
        ["d"],
        ["e", "f"],
    ]


def test_what_the_log_does_not_tell_is_an_error(tmp_path: Path) -> None:
    entry(tmp_path, "0", "a")
    entry(tmp_path, "2.compact", "a", "b", "c")
    with pytest.raises(PreconditionError, match="no entry for batch 1"):
        FileSink(tmp_path).paths(1)
    with pytest.raises(PreconditionError, match="no entry 1 any more"):
        FileSink(tmp_path).paths(2)


def test_an_output_is_one_of_three() -> None:
    assert isinstance(live_output(lambda spark, batch: None), Written)
    sink = FileSink(Path("/out"))
    assert live_output(sink) is sink
    with pytest.raises(InvalidRequestError, match="must be a FileSink"):
        live_output("/out")  # type: ignore[arg-type]


def test_rules_are_checked() -> None:
    for wrong, text in (
        ({"tolerance": -1.0}, "tolerance -1.0"),
        ({"tolerance": float("nan")}, "tolerance nan"),
        ({"columns": "k"}, "must be a tuple"),
        ({"columns": ("k",), "key": ("s",)}, "key s"),
    ):
        with pytest.raises(InvalidRequestError, match=text):
            CompareRules(**wrong)
