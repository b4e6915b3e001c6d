"""Runs a daemon's coroutine on uvloop. It stops cleanly on SIGTERM or SIGINT, and optionally when its parent ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from rhino_core.rpc.wakeups import start_grpc

log = logging.getLogger(__name__)
PARENT_POLL_S = 0.5
YOUNG_EVERY_S = 0.2  # from one garbage collection of young objects to the next
# A full collection takes about a second for a million objects, in which nothing is answered: it follows after 100 000
# collections of young objects. The first number bounds what is allocated between two collections by the timer.
GC_THRESHOLDS = (20_000, 1_000_000, 100_000)


def announce(fields: dict[str, object]) -> None:
    """Prints the readiness line, one JSON object on stdout, for the parent process."""
    sys.stdout.write(json.dumps(fields) + "\n")  # one write, also when stdout is unbuffered
    sys.stdout.flush()


def expect_a_large_heap() -> None:
    """Call it on the event loop once the lasting objects are there: a full garbage collection does not scan them.

    From then on a timer collects young objects, a few thousand at a time, and full collections are rare. Python's own
    rule waits until the heap has grown. In a heap with constantly replaced objects it would find 50 000 and more
    objects at once, and pause for 10 to 40 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    _collect_young(asyncio.get_running_loop())


def _collect_young(loop: asyncio.AbstractEventLoop) -> None:
    gc.collect(1)
    loop.call_later(YOUNG_EVERY_S, _collect_young, loop)


def run(daemon: Coroutine[Any, Any, None], *, exit_with_parent: bool) -> None:
    """Runs until the daemon ends or a signal stops it. Raises the daemon's error."""
    gc.freeze()  # otherwise every full garbage collection scans all imported objects
    uvloop.run(_supervise(daemon, exit_with_parent))


async def _supervise(daemon: Coroutine[Any, Any, None], exit_with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    start_grpc()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    main = asyncio.create_task(daemon)
    waiting: set[asyncio.Task[Any]] = {asyncio.create_task(stop.wait())}
    if exit_with_parent:
        waiting.add(asyncio.create_task(_parent_gone(os.getppid())))
    await asyncio.wait({main, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if main.done():
        main.result()
        return
    log.info("stopping")
    main.cancel()
    results = await asyncio.gather(main, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _parent_gone(parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110  the kernel sends no portable notification, so poll
        await asyncio.sleep(PARENT_POLL_S)
    log.info("parent process has gone", extra={"parent": parent})
