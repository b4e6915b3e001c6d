"""The quickstart does what it says: its blocks run as they stand, Python in one process, commands beside it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/quickstart.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
REFUSED = 3  # a move that the page gives as an example, and that there is nothing to do for
PRELUDE = """
import os, subprocess

def run(command, *codes):
    environment = os.environ | {"RHINO_MANAGER": cluster.manager}
    done = subprocess.run(command, shell=True, env=environment, timeout=150, capture_output=True, text=True)
    print("$", command, done.returncode, done.stdout, done.stderr, sep="\\n", flush=True)
    if done.returncode not in (0, *codes):
        raise SystemExit(f"{command}: {done.returncode}")
"""


def section(title: str) -> str:
    """The page from one heading of the second level to the next one."""
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(block: str) -> str:
    lines = [shlex.join(shlex.split(line, comments=True)) for line in block.splitlines() if line.strip()]
    examples = ("rhino plan", "rhino handover")
    return "".join(f"run({line!r}{f', {REFUSED}' if line.startswith(examples) else ''})\n" for line in lines)


def execute(program: str, folder: Path, timeout_s: float) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (folder / "quickstart.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(folder / "quickstart.py")],
        cwd=folder,
        env=os.environ | {"PATH": path},
        timeout=timeout_s,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.mark.spark
def test_three_workers(tmp_path: Path) -> None:
    blocks = BLOCK.findall(section("Three workers on one machine"))
    assert {kind for kind, _ in blocks} == {"python", "sh"}
    program = PRELUDE + "".join(text if kind == "python" else commands(text) for kind, text in blocks)
    # Where the reader has paused, the query has run a few batches.
    program = program.replace(
        "run('rhino status')", "while len(query.recentProgress) < 5: time.sleep(0.2)\nrun('rhino status')", 1
    )
    printed = execute(program, tmp_path, 280)
    assert "batches: the query goes on" in printed
    assert re.search(r"-> worker-\d Phase\.CONFIRMED 0 bytes|-> worker-\d confirmed 0 bytes", printed), printed[-5000:]
