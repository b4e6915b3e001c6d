"""`rhino manager`, to be killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

from rhino_core import failpoints
from tests import forked


class ManagerProcess:
    """On one address, over several processes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._options = options
        self.data_dir = folder / "journal"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process: forked.Forked | None = None

    async def start(self, armed: str = "") -> None:
        command = ["manager", "--data-dir", str(self.data_dir), "--listen", self.address, "--bootstrap", *self._options]
        env = {**os.environ, "PYTHONPATH": forked.PYTHON_PATH, failpoints.VARIABLE: armed}
        self.process = await forked.start(forked.RHINO, *command, env=env)

    async def ready(self) -> None:
        assert self.process is not None
        async with asyncio.timeout(20):
            assert json.loads(await self.process.stdout.readline())

    async def ended(self) -> int:
        assert self.process is not None
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
