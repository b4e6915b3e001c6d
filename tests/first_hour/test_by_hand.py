"""The quickstart's three workers by hand: its commands in a terminal, and the output that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino.client.overview import JobView, Overview, fetch_overview
from tests.first_hour.by_hand import begun, measured, seen
from tests.first_hour.pages import absent, session
from tests.spark.conftest import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]


def goes_on(overview: Overview) -> bool:
    """Whether worker-1 is lost, and the query has run batches on the others, with new replicas."""
    lost = any(worker.worker_id == "worker-1" and worker.state == "lost" for worker in overview.workers)
    whole = all(sum(m.whole and m.state == "live" for m in group.members) == 2 for group in overview.groups)
    nodes = overview.jobs[0].virtual_nodes
    settled = all(node.actual_worker == node.desired_worker != "worker-1" for node in nodes)
    return lost and whole and settled and measured(overview)


def a_move(job: JobView) -> tuple[str, str]:
    """A virtual node of a live worker, and the other one, as a reader takes them from the table."""
    node = job.virtual_nodes[0]
    return node.virtual_node, next(worker for worker in ("worker-2", "worker-3") if worker != node.desired_worker)


def test_three_workers_by_hand(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(wheel, tmp_path, monkeypatch) as (terminal, manager, shown_blocks):
        looked, kill, killed, moved = shown_blocks
        [(status, shown)] = session(looked)
        assert absent(shown, terminal.run(status)) == []

        before = fetch_overview(manager).jobs[0].batch_id
        terminal.run(kill)
        wait_for(lambda: seen(manager, lambda o: goes_on(o) and o.jobs[0].batch_id > before + 2), "the query goes on")
        [(status, shown)] = session(killed)
        printed = terminal.run(status)
        assert printed.splitlines()[0] == shown[0] or shown[0] in printed.splitlines()
        assert absent(shown, printed) == []

        [(move, shown)] = session(moved)
        words = move.split()
        node, target = a_move(fetch_overview(manager).jobs[0])
        words[3], words[words.index("--to") + 1] = node, target
        assert absent(shown, terminal.run(" ".join(words))) == []
        now = {v.virtual_node: v.desired_worker for v in fetch_overview(manager).jobs[0].virtual_nodes}
        assert now[node] == target
