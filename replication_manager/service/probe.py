"""Finds out whether a process has ended after its connection broke: its host then refuses new connections."""

from __future__ import annotations

import asyncio

GRACE_S = 0.1  # workers that end at the same moment then count as ended together, not one after the other
TIMEOUT_S = 2.0


async def refuses(address: str) -> bool:
    """Whether `address` ("host:port") refuses a connection after GRACE_S seconds.

    Silence and every other answer give False.
    """
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
