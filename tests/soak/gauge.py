"""Inside a daemon under soak: shorter periods, perhaps a planted leak, and a socket that reports its measurements."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.usage import anonymous_bytes
from rhino_core.ids import NAMES_PARSED, parse_name
from tests.simulation.sizes import CORES, sizes

SOCKET, LEAK = "TEST_GAUGE", "TEST_LEAK"
PERIODS: dict[str, Any] = {  # minutes and hours in a real cluster
    "handover_manager.plan.measurements.KEPT": 4,
    "handover_manager.drive.handovers.ENDED_MAX": 20,
    "handover_manager.queries.history.ACTIONS_MAX": 20,
    "replication_manager.protocol.placement.lagging.COOLDOWN_S": 2.0,
    "replication_manager.protocol.placement.lagging.COOLDOWN_S_MAX": 5.0,
    "replication_manager.protocol.workers.bootstrap.GIVEN_UP_MAX": 10,
    "rhino_core.rpc.rules.KNOWN_MAX": 32,
    "worker_runtime.upkeep.collector.SWEEP_S": 2.0,
    "worker_runtime.protocol.versions.attempts.ATTEMPTS_KEPT": 8,
    "worker_runtime.protocol.versions.closure.ZIP_AFTER_FILES_S": 5.0,
    "worker_runtime.protocol.copies.excess.AGAIN_S": 2.0,
    "worker_runtime.protocol.chain.membership.SWEEP_S": 5.0,
    "worker_runtime.statistics.RECORDS_MAX": 20,
    "worker_runtime.upkeep.flusher.PERIOD_S": 5.0,
    "worker_runtime.push.links.STRANGERS_MAX": 10,
    "worker_runtime.node.TIDY_S": 1.0,
    "worker_runtime.fetch.peers.UNUSED_S": 3.0,
    "rhino_core.retry.LINK_ABSENT_S_MAX": 3.0,
    "worker_runtime.storage.arriving.inbox.ABANDONED_S": 5.0,
    "worker_runtime.storage.disk.partials.AGE_S_MAX": 10.0,
}
_served: list[asyncio.Server] = []  # else the loop would forget it


async def install() -> None:
    """To be awaited before the daemon begins."""
    for name, value in PERIODS.items():
        module, _, constant = name.rpartition(".")
        assert hasattr(importlib.import_module(module), constant), f"there is no {name} any more"
        setattr(importlib.import_module(module), constant, value)
    for number in range(NAMES_PARSED):  # full from the beginning
        parse_name(f"{number}_x.changelog")
    if leak := os.environ.get(LEAK):
        LEAKS[leak]()
    socket = Path(os.environ[SOCKET])
    socket.unlink(missing_ok=True)
    _served.append(await asyncio.start_unix_server(_answer, socket))


async def ask(socket: Path) -> dict[str, float]:
    """The measurements that the daemon with this gauge reports."""
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_unix_connection(socket, limit=2**24)
        try:
            figures: dict[str, float] = json.loads(await reader.read())
            return figures
        finally:
            writer.close()


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(json.dumps(figures()).encode())
    await writer.drain()
    writer.close()


def figures() -> dict[str, float]:
    """The measurements of this process."""
    gc.collect()
    found: dict[str, float] = {
        "anonymous MB": anonymous_bytes(os.getpid()) / 1e6,
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
    }
    objects = gc.get_objects()
    kinds = Counter(_kind(one) for one in objects)
    ours = sorted((one for one in objects if _kind(one).startswith(CORES)), key=_kind)
    found |= {f"objects {kind}": number for kind, number in kinds.items()}
    return found | {f"size of {place}": length for place, length in sizes(ours).items()}


def _kind(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"


# ------------------------------------------------------------ leaks to be found


def _links_stay() -> None:
    from worker_runtime.push.links import Links

    Links.tidy = lambda self: None  # type: ignore[method-assign]


def _settings_stay() -> None:
    from replication_manager.protocol.changes.chains import Chains

    def leaking(self: Chains, job: str) -> None:
        """Leaves many for each job: few jobs come and go on a busy machine."""
        if settings := self.settings_of(job):
            for copy in range(50):
                self.remember(f"{job} {copy}", settings)

    Chains.forget_settings = leaking  # type: ignore[method-assign]


def _descriptors_stay() -> None:
    from worker_runtime.storage.arriving.inbox import Inbox

    sweep = Inbox.sweep

    def leaking(self: Inbox) -> int:
        for _ in range(5):
            os.open("/dev/null", os.O_RDONLY)
        return sweep(self)

    Inbox.sweep = leaking  # type: ignore[method-assign]


LEAKS: dict[str, Callable[[], None]] = {
    "links": _links_stay,
    "settings": _settings_stay,
    "descriptors": _descriptors_stay,
}
