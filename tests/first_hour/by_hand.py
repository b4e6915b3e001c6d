"""The cluster of the quickstart's three workers by hand, made with its commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rhino.client.overview import Overview, fetch_overview
from rhino_core.errors import UnavailableError
from tests.first_hour.machine import prepare
from tests.first_hour.network import prefix
from tests.first_hour.pages import blocks
from tests.first_hour.terminal import Terminal
from tests.spark.conftest import wait_for

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


@contextmanager
def begun(
    wheel: Path, folder: Path, patched: pytest.MonkeyPatch, extras: str = "testing"
) -> Iterator[tuple[Terminal, str, list[str]]]:
    """Yields a terminal once the query runs, the address of the manager, and the blocks of the page behind that."""
    patched.setenv("RHINO_CLUSTER_KEY", str(folder / "cluster.key"))  # for the calls of this process
    machine = prepare(folder, wheel, f"rhino-state[{extras}]")
    network = prefix()
    manager = f"{network}1:7461"
    (_, application), *given = blocks(PAGE, TITLE)
    rhino, spark, submit, *others = [text.replace("127.0.0.", network) for _, text in given]
    (folder / "counts.py").write_text(application)
    with Terminal(machine) as terminal:
        terminal.run(rhino)
        terminal.run(spark)
        wait_for(lambda: seen(manager, three_live), "three live workers")
        wait_for(lambda: (folder / "master.log").read_text().count("Registering worker") == 3, "three Spark workers")
        terminal.run(submit)
        wait_for(lambda: seen(manager, measured), "some batches", timeout_s=180)
        yield terminal, manager, others
