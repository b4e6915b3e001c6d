"""What leads a process through its failpoints sees each of them, also if several threads are there at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crashes.puppeteer import Puppeteer

# Two threads reach points before the first one has stopped the process. Then the second one does the same.
TWICE = "echo failpoint a; echo failpoint b; kill -STOP $$; kill -STOP $$"


@pytest.mark.parametrize("point", ["a", "b"])
@pytest.mark.timeout(60)
def test_a_point_counts_even_if_another_thread_is_at_one(tmp_path: Path, point: str) -> None:
    log, acted = tmp_path / "log", list[str]()
    with log.open("wb") as output:
        process = subprocess.Popen(["sh", "-c", TWICE], stdout=output)
    puppeteer = Puppeteer(lambda: process.pid, log)
    puppeteer.play([(point, lambda: acted.append(point))])
    puppeteer.start()
    assert process.wait(50) == 0
    assert puppeteer.played()
    assert acted == [point]
    puppeteer.end()
