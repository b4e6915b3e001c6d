"""The quickstart's three workers by hand: its commands in a terminal, and the output that it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rhino.client.overview import JobView, Overview, fetch_overview
from rhino_core.errors import UnavailableError
from tests.first_hour.machine import prepare
from tests.first_hour.network import prefix
from tests.first_hour.pages import absent, blocks, session
from tests.first_hour.terminal import Terminal
from tests.spark.conftest import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
PAGE, TITLE = "docs/quickstart.md", "Three workers by hand"


def seen(manager: str, condition: Callable[[Overview], bool]) -> bool:
    try:
        return condition(fetch_overview(manager))
    except UnavailableError:
        return False


def three_live(overview: Overview) -> bool:
    return sum(worker.state == "live" for worker in overview.workers) == 3


def measured(overview: Overview) -> bool:
    """Whether the query has run some batches, with its state on two workers each."""
    jobs = overview.jobs
    nodes = jobs[0].virtual_nodes if jobs else ()
    known = [node.rows is not None and node.task_s is not None and len(node.holders) == 2 for node in nodes]
    return bool(jobs) and jobs[0].batch_id > 3 and len(known) == 6 and all(known)


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
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(tmp_path / "cluster.key"))  # for the calls of this process
    machine = prepare(tmp_path, wheel, "rhino-state[testing]")
    network = prefix()
    manager = f"{network}1:7461"
    (_, application), *given = [(kind, text.replace("127.0.0.", network)) for kind, text in blocks(PAGE, TITLE)]
    (tmp_path / "counts.py").write_text(application)
    (_, rhino), (_, spark), (_, submit), (_, looked), (_, kill), (_, killed), (_, moved) = given
    with Terminal(machine) as terminal:
        terminal.run(rhino)
        terminal.run(spark)
        wait_for(lambda: seen(manager, three_live), "three live workers")
        wait_for(lambda: (tmp_path / "master.log").read_text().count("Registering worker") == 3, "three Spark workers")
        terminal.run(submit)
        wait_for(lambda: seen(manager, measured), "some batches", timeout_s=180)
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
