"""Managers and stores of the tests of sidecars with a manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rhino.client.overview import GroupView, fetch_overview
from rhino.daemons.manager_process import run_manager
from rhino_core.ids import StoreId, Version
from rhino_core.settings import ManagerSettings

STORE = StoreId("job", 0, 3, "default")


def version(number: int) -> Version:
    return Version(number, f"id{number}")


def lineage(number: int) -> list[Version]:
    return [version(n) for n in range(1, number)]


@asynccontextmanager
async def manager(settings: ManagerSettings) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run_manager(settings, ready.set_result))
    try:
        yield await asyncio.wait_for(ready, 10)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def settings_of(
    folder: Path, listen: str = "127.0.0.1:0", *, bootstrap: bool = True, lease_s: float = 2.0
) -> ManagerSettings:
    return ManagerSettings(
        folder / "journal", listen, heartbeat_interval_s=0.2, lease_s=lease_s, suspect_lease_s=0.4, bootstrap=bootstrap
    )


async def group_of(address: str, *members: str) -> GroupView:
    """Waits until the group consists of these workers, all live and whole."""
    async with asyncio.timeout(30):
        while True:
            overview = await asyncio.to_thread(fetch_overview, address)
            for group in overview.groups:
                if [m.worker_id for m in group.members if m.whole and m.state == "live"] == list(members):
                    return group
            await asyncio.sleep(0.05)
