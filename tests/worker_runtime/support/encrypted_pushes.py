"""Parts of the tests of encrypted pushes that other tests use as well."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rhino_core.ids import StoreId
from rhino_core.security.identity import Role
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.attacker import Attacker
from tests.worker_runtime.cluster import Client, Cluster, Process
from tests.worker_runtime.support.certificates import Folders
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

STORE = StoreId("job", 0, 3, "default")
MARK = b"nobody on the network reads this"


def log_lines(process: Process) -> list[dict[str, Any]]:
    text = (process.settings.data_dir.parent / "log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@dataclass
class Pair:
    """Sidecar `a`, which pushes to `b` through the attacker. Metrics are served."""

    a: Process
    b: Process
    attacker: Attacker
    committed: int = 0

    async def commit(self, client: Client, *, small: int = 20_000, large: int = 0) -> None:
        """A version with random bytes, and perhaps a data file. Returns once `b` has it, exactly."""
        self.committed += 1
        number = self.committed
        files = {f"{version(number)}.changelog": MARK + os.urandom(small)}
        if large:
            files[f"SSTs/{number:06d}-x.sst"] = MARK + os.urandom(large)
            await client.add(STORE, f"SSTs/{number:06d}-x.sst", files[f"SSTs/{number:06d}-x.sst"])
        reply = await client.commit(
            STORE, version(number), files[f"{version(number)}.changelog"], lineage(number), timeout_s=45
        )
        assert reply.copies == 2
        async with asyncio.timeout(45):
            for name, content in files.items():
                stored = self.b.settings.data_dir / "store" / str(STORE) / name
                while not stored.exists():  # noqa: ASYNC110  a data file may be stored after the commit's copies
                    await asyncio.sleep(0.02)
                assert stored.read_bytes() == content


@asynccontextmanager
async def pair(
    folders: Folders, tmp_path: Path, attacker: Attacker, encryption: tuple[str, str] = ("", "")
) -> AsyncIterator[Pair]:
    """`encryption`: of `a` and of `b`."""
    settings = replace(settings_of(tmp_path, lease_s=60.0), tls_dir=folders.of(Role.MANAGER, "manager"))
    async with asyncio.timeout(280), Cluster(tmp_path) as cluster, attacker, manager(settings) as address:
        cluster.address = address
        behind = f"127.0.0.1:{free_port()}"
        attacker.forward(behind)
        more: dict[str, dict[str, Any]] = {
            "a": {},
            "b": {"listen": behind, "advertise": attacker.address, "push_port": attacker.push_port},
        }
        a, b = (
            cluster.make(
                name,
                tls_dir=folders.of(Role.WORKER, name),
                metrics_port=free_port(),
                push_encryption=mode,
                **more[name],
            )
            for name, mode in zip("ab", encryption, strict=True)
        )
        await asyncio.gather(a.start(), b.start())
        yield Pair(a, b, attacker)
