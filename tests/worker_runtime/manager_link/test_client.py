"""The questions of a sidecar to a manager that answers when the test wants."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from rhino_core.errors import UnknownError
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings, ReplicaGroup, Worker
from rhino_core.rpc.channel import RenewedChannel
from rhino_core.security.transport import PLAIN
from rhino_pb import replication_pb2
from tests.worker_runtime.fake_manager import FakeManager
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.protocol import events as ev

GROUP = GroupId("job", 0, 3)
ME = Worker("a", "a/1", "127.0.0.1", "127.0.0.1:1")


class OneGroup:
    """`Replication` and its view, of a worker that knows no group at first."""

    def __init__(self) -> None:
        self.me, self.view = ME, self
        self.adopted: dict[GroupId, ReplicaGroup] = {}

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self.adopted.get(group)

    def epoch(self, group: GroupId) -> Any:
        return NO_EPOCH

    def forgotten(self, group: GroupId) -> bool:
        return False

    def post(self, event: ev.Event) -> None:
        assert isinstance(event, ev.GroupAdopted)
        self.adopted[event.group.group] = event.group


class SlowToRefuse(FakeManager):
    """Refuses a question about an existing group when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = {ME.worker_id: ME}
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def ResolveGroup(
        self, request: replication_pb2.ResolveGroupRequest, context: Any
    ) -> replication_pb2.ResolveGroupReply:
        self.asked.set()
        if request.existing_only:
            await self.go_on.wait()
            raise UnknownError("it was not there")
        return await super().ResolveGroup(request, context)


async def test_who_names_a_new_group_does_not_share_a_question_about_an_existing_one() -> None:
    """A peer has named the group a moment before the first commit here. The manager refuses only the former."""
    manager = SlowToRefuse()
    channel = RenewedChannel(await manager.start(), PLAIN)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        link = cast("Any", OneGroup())
        unused = cast("Any", SimpleNamespace())
        client = ManagerClient(link, unused, unused, unused, "the manager", channel, tasks, unused)
        client.ask(GROUP)
        await manager.asked.wait()
        naming = asyncio.create_task(client.known(GROUP, JobSettings(0)))
        await asyncio.sleep(0)  # it asks now
        manager.go_on.set()
        found = await naming
        assert found.owner.worker_id == ME.worker_id
    await channel.close()
    await manager.stop()
