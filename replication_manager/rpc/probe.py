"""Whether a process that broke off its connection has ended: then its host refuses new ones."""

from __future__ import annotations

import asyncio

GRACE_S = 0.1  # several workers that end at the same moment are seen to have ended, not one after the other
TIMEOUT_S = 2.0


async def refuses(address: str) -> bool:
    """Nobody listens at `address` ("host:port"), after a moment's grace. Silence, and any other answer, is False."""
    await asyncio.sleep(GRACE_S)
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
