"""A sidecar two protocol versions away from its manager is refused, and both versions are in its log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from rhino_core.protocol import PROTOCOL
from tests.upgrade.deployment import Deployment, environment
from tests.worker_runtime.cluster import ROOT

FURTHER = PROTOCOL + 2
MAIN = """
import sys
from rhino_core import protocol
protocol.PROTOCOL = int(sys.argv.pop(1))
from rhino.cli.main import main
main()
"""
TEXT = f"sidecar 'far' speaks version {FURTHER} of Rhino's protocol, the manager version {PROTOCOL}"


async def test_both_versions_are_named(tmp_path: Path) -> None:
    async with Deployment(tmp_path, ROOT, workers=()) as deployment:
        log, host = tmp_path / "far.log", "127.0.0.21"
        arguments = ("--worker-id", "far", "--host", host, "--listen", f"{host}:0", "--data-dir", str(tmp_path / "far"))
        with log.open("wb") as file:
            sidecar = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", MAIN, str(FURTHER), "sidecar", *arguments),
                *("--socket", str(tmp_path / "far.sock"), "--manager", deployment.address, "--exit-with-parent"),
                stdout=file,
                stderr=file,
                env=environment(ROOT),
            )
        try:
            async with asyncio.timeout(90):
                while TEXT not in log.read_text():  # noqa: ASYNC110  a log sends no notification
                    await asyncio.sleep(0.1)
        finally:
            sidecar.kill()
            await sidecar.wait()
        assert "upgrade the manager" in log.read_text()
        assert not (await deployment.overview()).workers
