"""What a sidecar does for itself in the background, as it is wired together in a real one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource

import pytest

from tests.worker_runtime.cluster import Cluster
from worker_runtime import node
from worker_runtime.fetch.peers import Peers
from worker_runtime.push.links import Links
from worker_runtime.sidecar import run_sidecar
from worker_runtime.storage.arriving.inbox import Inbox


async def test_it_looks_for_what_nobody_needs_also_after_an_error_of_the_system(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, connections and inbox files; with the first look of each there is no descriptor left."""
    seen = {"links": 0, "peers": 0, "inbox": 0}
    done = asyncio.Event()

    def looked(at: str) -> None:
        seen[at] += 1
        if seen[at] == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        if all(times > 1 for times in seen.values()):
            loop.call_soon_threadsafe(done.set)

    async def peers(self: Peers) -> None:
        looked("peers")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr("rhino_core.descriptors.PAUSE_S", 0.01)
    monkeypatch.setattr("worker_runtime.upkeep.collector.SWEEP_S", 0.01)
    monkeypatch.setattr(node, "TIDY_S", 0.01)
    monkeypatch.setattr(Links, "tidy", lambda self: looked("links"))
    monkeypatch.setattr(Peers, "tidy", peers)
    monkeypatch.setattr(Inbox, "sweep", lambda self: looked("inbox"))
    running = asyncio.create_task(run_sidecar(cluster.make("a").settings, lambda worker: None))
    try:
        looks = asyncio.create_task(done.wait())
        await asyncio.wait([looks, running], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        looks.cancel()
        assert not running.done()
        assert done.is_set(), seen
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_it_takes_as_many_descriptors_as_it_may_have(cluster: Cluster) -> None:
    a, (soft, hard) = cluster.make("a"), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1000), hard))
    try:
        await a.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert a.process is not None
    assert resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE)[0] == min(hard, 1024 * 1024)
