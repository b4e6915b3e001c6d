"""The quickstart's notebook on a user's machine: its cells in a real Jupyter kernel, and again after a restart."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.first_hour.machine import Machine, prepare
from tests.first_hour.pages import COMMENT, blocks
from tests.spark.notebook.kernel import Kernel, started

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(700)]
PAGE, TITLE = "docs/quickstart.md", "In a notebook"


@contextmanager
def notebook_on(machine: Machine) -> Iterator[Kernel]:
    folder = machine.home / "kernels" / "users"
    folder.mkdir(parents=True)
    command = [str(machine.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "users", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(folder.parent)])
    manager = KernelManager(kernel_name="users", kernel_spec_manager=specs)
    with started(manager, machine.home, machine.environment) as running:
        yield running


def run_cells(notebook: Kernel, cells: list[str]) -> int:
    """Runs the cells as they stand. Returns the sum of all counts that the last one prints."""
    session, *others, last = cells
    notebook.run(session)
    assert "Rhino keeps state in " in notebook.printed
    assert "/.local/share/rhino-state/local" in notebook.printed
    for cell in others:
        notebook.run(cell)
    commit_ms = notebook.run(last)
    assert isinstance(commit_ms, int)
    return int(re.findall(r"\|\s*(\d+)\|", notebook.printed)[-1])


def test_a_notebook_continues_after_a_restart_of_its_kernel(wheel: Path, tmp_path: Path) -> None:
    machine = prepare(tmp_path, wheel, "rhino-state[testing]", "ipykernel")
    given = blocks(PAGE, TITLE)
    cells = [text for kind, text in given if kind == "python"]
    with notebook_on(machine) as notebook:
        assert notebook.run("import rhino; rhino.__file__").startswith(str(machine.home))
        first = run_cells(notebook, cells)
        notebook.restart()
        assert run_cells(notebook, cells) > first > 0

    (commands,) = [text.splitlines() for kind, text in given if kind == "sh"]
    show, clean = (COMMENT.sub("", line).strip() for line in commands)
    assert (shlex.split(show), shlex.split(clean)) == (["rhino", "local", "show"], ["rhino", "local", "clean"])
    job = json.loads((machine.home / "rhino-quickstart" / "metadata").read_text())["id"]
    assert job in machine.run(show)
    assert job in machine.run(f"{clean} --yes")
    assert "no query has state here" in machine.run(show)
