"""A heartbeat with many reports waits for its turn, and its lease does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replication_manager.service.service import REPORTS_AT_ONCE, ReplicationService
from rhino_core.errors import PreconditionError
from rhino_core.journal import Journal
from rhino_core.settings import ManagerSettings
from rhino_core.turns import Turns
from rhino_core.version import PROTOCOL
from rhino_pb import common_pb2, replication_pb2

WORKER = common_pb2.Worker(worker_id="a", incarnation="a/1", host="a", peer_address="a:1")


class Held(Turns):
    """Turns that are given by the test only."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.given = asyncio.Event(), asyncio.Event()

    async def take(self) -> None:
        self.asked.set()
        await self.given.wait()


def with_reports(lease: bytes, count: int) -> replication_pb2.HeartbeatRequest:
    groups = [common_pb2.GroupId(job="job", operator=0, partition=number) for number in range(count)]
    changed = [replication_pb2.GroupReport(group=group, stored_bytes=9) for group in groups]
    return replication_pb2.HeartbeatRequest(
        worker_id="a", incarnation="a/1", free_bytes=77, changed=changed, lease=lease
    )


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_heartbeat_with_many_reports_renews_the_lease_and_waits(tmp_path: Path, replaced: bool) -> None:
    """Its reports count later, unless another process has registered as the worker meanwhile."""
    journal, turns = Journal(tmp_path, bootstrap=True), Held()
    service = ReplicationService(journal, ManagerSettings(tmp_path, "127.0.0.1:0"), turns)
    running = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    context: Any = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:40000")
    request = replication_pb2.RegisterRequest(worker=WORKER, process_id="a", protocol=PROTOCOL)
    lease = (await service.Register(request, context)).lease

    async def requests() -> AsyncIterator[replication_pb2.HeartbeatRequest]:
        yield with_reports(lease, REPORTS_AT_ONCE)
        yield with_reports(lease, REPORTS_AT_ONCE + 1)

    replies = service.Heartbeat(requests(), context)
    await anext(replies)
    record = service.core.membership.records["a"]
    assert len(record.reports) == REPORTS_AT_ONCE, "these did not wait"
    assert not turns.asked.is_set()
    heard_at, second = record.heard_at, asyncio.ensure_future(anext(replies))
    await asyncio.wait_for(turns.asked.wait(), 5)
    assert record.heard_at > heard_at
    assert len(record.reports) == REPORTS_AT_ONCE
    if replaced:
        await service.Register(request, context)
    turns.given.set()
    if replaced:
        with pytest.raises(PreconditionError, match="by another process"):
            await second
        assert service.core.membership.records["a"].reports == {}
    else:
        await second
        assert len(record.reports) == REPORTS_AT_ONCE + 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    journal.close()
