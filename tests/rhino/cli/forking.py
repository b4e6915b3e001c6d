"""The `rhino` command in processes forked from one that has imported it, which is most of its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rhino.cli import main
from rhino.daemons import manager_process
from worker_runtime import sidecar

IMPORTED = (manager_process, sidecar)  # else every daemon would import its own
Rhino = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def rhino() -> Iterator[Rhino]:
    """Runs the command with its arguments."""
    command = [sys.executable, "-m", "tests.rhino.cli.forking"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        stdin, stdout = server.stdin, server.stdout
        said = [Path(folder, name) for name in ("out", "err")]

        def run(*arguments: str | bytes) -> subprocess.CompletedProcess[str]:
            for path in said:
                path.write_text("")
            call = [[os.fsdecode(argument) for argument in arguments], [str(path) for path in said]]
            print(json.dumps(call), file=stdin, flush=True)
            code = int(stdout.readline())
            return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in said))

        yield run


def serve() -> None:
    """A line of standard input is a call; its exit code goes to standard output."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            arguments, said = json.loads(line)
            for number, path in enumerate((os.devnull, *said)):
                os.dup2(os.open(path, os.O_RDWR), number)
            sys.argv = ["rhino", *arguments]
            main.main()
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
