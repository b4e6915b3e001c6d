"""The stored results of a shadow run, and their text in `rhino shadow`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from query_evolution.shadows.report import ComparedBatch, Difference, Failure, Results
from rhino.cli.main import app
from rhino_core.errors import IntegrityError, UnknownError
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark_connector.support.checkpoint import make

EQUAL = ComparedBatch(3, 10, 10, 0, 0, 0.5, 0.25)
PAIR = Difference(4, '{"k":7,"s":[1]}', None)
DIFFERENT = ComparedBatch(4, 10, 9, 1, 0, 0.5, 0.25, (PAIR,))


@pytest.fixture
def branch(tmp_path: Path) -> QueryCheckpoint:
    return make(tmp_path / "b", {"0": [["a"]]})


def test_a_report_has_all_batches_in_order(branch: QueryCheckpoint) -> None:
    results = Results(branch)
    for one in (replace(EQUAL, batch=10), replace(EQUAL, batch=9), DIFFERENT):
        results.add(one)
    report = Results(branch).report()
    assert [one.batch for one in report.batches] == [4, 9, 10]
    assert (report.equal, report.different, report.examples, report.agrees) == (2, (DIFFERENT,), (PAIR,), False)
    results.add(replace(EQUAL, batch=4))
    assert results.report().agrees, "the batch ran again"
    assert (branch.folder / "shadow").stat().st_mode & 0o777 == 0o700, "it has values of rows"


def test_a_failure_is_kept_until_the_next_run(branch: QueryCheckpoint) -> None:
    results = Results(branch)
    results.fail(Failure(3, "no score"))
    assert results.report().failure == Failure(3, "no score")
    results.add(EQUAL)
    assert not results.report().agrees
    results.fail(None)
    assert results.report().agrees


def test_examples_are_limited(branch: QueryCheckpoint) -> None:
    results = Results(branch)
    for number in range(3):
        results.add(replace(DIFFERENT, batch=number, examples=(PAIR,) * 15))
    assert len(results.report().examples) == 20


def test_nothing_and_nonsense_are_errors(branch: QueryCheckpoint) -> None:
    with pytest.raises(UnknownError, match=r"no batch was compared.*query_evolution.shadow"):
        Results(branch).report()
    Results(branch).add(EQUAL)
    path = branch.folder / "shadow" / "3"
    for text in ("{", "{}", path.read_text().replace("10", '"x"')):
        path.write_text(text)
        with pytest.raises(IntegrityError, match="not readable"):
            Results(branch).report()


def test_the_command_says_what_differs_by_its_exit_code_too(branch: QueryCheckpoint) -> None:
    def said(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["shadow", str(branch.folder), *options])
        return result.exit_code, result.output

    results = Results(branch)
    results.add(EQUAL)
    assert said() == (0, "1 batch compared, 3 to 3: 1 equal, 0 differ\n")
    results.add(DIFFERENT)
    code, text = said()
    assert (code, "2 batches compared, 3 to 4: 1 equal, 1 differ" in text) == (1, True)
    assert '{"k":7,"s":[1]}' in text
    results.fail(Failure(5, "ValueError: no score"))
    assert "the new code has failed in batch 5: ValueError: no score" in said()[1]
    code, text = said("--json")
    fields = json.loads(text)
    assert (code, fields["batches"][1]["missing"], fields["failure"]["batch"]) == (1, 1, 5)
