"""Parts of the tests of drain service that other tests use as well."""

from __future__ import annotations

import asyncio

from typer.testing import CliRunner, Result

from rhino.cli.main import app
from tests.handover_manager.support.service import Scene


async def rhino(scene: Scene, *arguments: str) -> Result:
    result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--manager", scene.manager.address])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
