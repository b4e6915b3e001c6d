"""Measurements that do not end say what they were at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cells import Cells, Say, parser
from benchmarks.stateful import Load
from rhino.errors import RhinoError


@pytest.mark.parametrize("error", [RhinoError("no batch"), KeyboardInterrupt()])
def test_a_measurement_that_is_broken_off_says_where(
    error: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(subject: str, load: Load, folder: Path, say: Say) -> list[str]:
        say("building the state, batch 17")
        raise error

    arguments = parser("benchmarks.x", None, ("a",), ("a",)).parse_args(["--sizes", "0.001", "--dir", str(tmp_path)])
    with pytest.raises(type(error)):
        Cells(arguments, measure, lambda results: [], str).run()
    assert "a, 0.001 GB: broken off at: building the state, batch 17" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
