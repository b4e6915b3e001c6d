"""`python -m tests.soak.manager_process <settings as JSON>`: the manager with a gauge; prints its address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

import uvloop

from rhino.daemons.manager_process import run_manager
from rhino_core.log import configure_logging
from rhino_core.settings import ManagerSettings
from tests.soak import gauge


async def main() -> None:
    fields = json.loads(sys.argv[1])
    settings = ManagerSettings(**{**fields, "data_dir": Path(fields["data_dir"])})
    await gauge.install()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await run_manager(settings, lambda address: print(address, flush=True))


if __name__ == "__main__":
    configure_logging("warning", json_lines=True)
    uvloop.run(main())
