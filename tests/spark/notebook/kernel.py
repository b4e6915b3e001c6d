"""A real Jupyter kernel."""

from __future__ import annotations

import ast
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

START_TIMEOUT_S = 90
CELL_TIMEOUT_S = 240
ROOT = Path(__file__).parents[3]


class CellError(Exception):
    """A cell ended with this error: its class and its message."""


class Kernel:
    """Runs cells one after the other."""

    def __init__(self, manager: KernelManager) -> None:
        self._manager = manager
        self._client = manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=START_TIMEOUT_S)
        self.printed = ""  # of the newest cell, on both outputs

    def run(self, code: str) -> Any:
        """Returns the value of the last expression, which must be a literal. Raises CellError."""
        texts: list[str] = []
        values: list[str] = []

        def output(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])
            if message["msg_type"] == "execute_result":
                values.append(message["content"]["data"]["text/plain"])

        reply = self._client.execute_interactive(code, timeout=CELL_TIMEOUT_S, output_hook=output)["content"]
        self.printed = "".join(texts)
        if reply["status"] != "ok":
            raise CellError(f"{reply['ename']}: {reply['evalue']}")
        return ast.literal_eval(values[-1]) if values else None

    def run_and_stop(self, code: str, after_s: float) -> str:
        """Presses the stop button while the cell runs: SIGINT to the kernel's process group. Returns the error."""
        timer = threading.Timer(after_s, self._manager.interrupt_kernel)
        timer.start()
        try:
            self.run(code)
        except CellError as error:
            return str(error)
        finally:
            timer.cancel()
        raise AssertionError("the cell has not been interrupted")

    @property
    def pid(self) -> int:
        pid = self.run("import os; os.getpid()")
        assert isinstance(pid, int)
        return pid

    def kill_and_restart(self) -> None:
        """kill -9 of the kernel alone, and a new kernel in its place."""
        os.kill(self.pid, signal.SIGKILL)
        self._manager.restart_kernel(now=True)
        self._client.wait_for_ready(timeout=START_TIMEOUT_S)

    def restart(self) -> None:
        """The restart button."""
        self._manager.restart_kernel()
        self._client.wait_for_ready(timeout=START_TIMEOUT_S)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """Starts a kernel whose home and working directory are `folder`."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "XDG_DATA_HOME": str(folder)}
    with started(KernelManager(kernel_name="python3"), folder, environment) as running:
        yield running


@contextmanager
def started(manager: KernelManager, folder: Path, environment: Mapping[str, str]) -> Iterator[Kernel]:
    """Starts the kernel of `manager` in `folder`, with these variables only."""
    manager.start_kernel(cwd=str(folder), env=dict(environment))
    running = Kernel(manager)
    try:
        yield running
    finally:
        running.close()
