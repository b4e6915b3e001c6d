"""A day of operation: its commands in a terminal, on the quickstart's three workers, and the output that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rhino.client.overview import Overview, fetch_overview
from tests.first_hour.by_hand import begun, measured, seen, three_live
from tests.first_hour.pages import BLOCK, ROOT, absent, session
from tests.first_hour.terminal import Terminal
from tests.spark.conftest import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
REGISTERED = re.compile(r"Registering worker (\S+)")
PAGE = ROOT / "docs/operate/walkthrough.md"


def whole(overview: Overview) -> bool:
    """Whether all workers are live, and all groups have their copies."""
    return three_live(overview) and all(sum(m.whole for m in group.members) >= 2 for group in overview.groups)


def one_lost(overview: Overview) -> bool:
    return any(one.worker_id == "worker-1" and one.state == "lost" for one in overview.workers)


class Reader:
    """Types the blocks of the page, one after the other."""

    def __init__(self, terminal: Terminal, network: str) -> None:
        self._terminal = terminal
        self._blocks = iter(text.replace("127.0.0.", network) for _, _, text in BLOCK.findall(PAGE.read_text()))

    def types(self) -> str:
        return self._terminal.run(next(self._blocks))

    def compares(self) -> None:
        """The command of a block prints the lines that the page shows, among others."""
        [(command, shown)] = session(next(self._blocks))
        printed = self._terminal.run(command, fails=True)
        assert absent(shown, printed) == [], printed


def test_a_day_of_operation(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(wheel, tmp_path, monkeypatch, "testing,ui") as (terminal, manager, _):
        reader = Reader(terminal, manager.removesuffix("1:7461"))
        reader.types()
        wait_for(lambda: "#token=" in (tmp_path / "page.log").read_text(), "the address of the page")
        reader.compares()  # a drain
        reader.compares()
        reader.types()
        wait_for(lambda: seen(manager, three_live), "worker-2 is back")
        workers = (tmp_path / "master.log").read_text
        # A worker on a busy machine registers twice, with the same port.
        wait_for(lambda: len({*REGISTERED.findall(workers())}) == 4, "its Spark worker is back")
        reader.compares()
        reader.compares()
        wait_for(lambda: seen(manager, whole) and seen(manager, measured), "all copies")
        reader.types()  # a sidecar is stopped for a while
        batch = fetch_overview(manager).jobs[0].batch_id
        wait_for(lambda: fetch_overview(manager).jobs[0].batch_id > batch + 2, "further batches")
        assert '"triggerExecution"' in terminal.run(session(next(reader._blocks))[0][0])
        reader.types()  # the manager is killed
        reader.compares()
        reader.types()
        wait_for(lambda: seen(manager, whole), "the manager is back")
        reader.compares()
        reader.types()  # a file is damaged
        reader.compares()
        reader.types()  # a worker is killed
        wait_for(lambda: seen(manager, one_lost), "worker-1 is lost")
        reader.compares()
        assert next(reader._blocks, None) is None, "the page has no further block"
