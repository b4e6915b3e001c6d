"""When the handover manager looks at the cluster: after changes and at deadlines, and not otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handover_manager.events import Effect, Persist
from handover_manager.plan.measurements import MeasurementsRecord
from handover_manager.service import runtime as runtimes
from handover_manager.service import stored, views
from handover_manager.service.views import Views
from handover_manager.service.writers import WriterFinder
from replication_manager.protocol import events as replication
from replication_manager.service.service import ReplicationService
from rhino.daemons.cluster_port import ClusterPort
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings, Worker
from rhino_core.journal import Journal
from rhino_core.security.transport import PLAIN
from rhino_core.settings import ManagerSettings
from tests.handover_manager.cluster import until


class Scene:
    """Both managers in this loop, without a network. `views` counts those that the handover manager has taken."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder, bootstrap=True)
        self.replication = ReplicationService(self.journal, ManagerSettings(folder, "127.0.0.1:0"))
        self.port = ClusterPort(self.replication)
        self.views = 0
        take = self.port.view

        def view(*, asked_at: float) -> Any:
            self.views += 1
            return take(asked_at=asked_at)

        self.port.view = view  # type: ignore[method-assign]
        self.handover = runtimes.Runtime(self.journal, self.port, WriterFinder(PLAIN), forget_grace_s=60.0)

    def register(self, name: str) -> None:
        worker = Worker(name, f"{name}/1", f"host-{name}", f"{name}:1")
        self.replication.handle(replication.Registered(worker, name, NO_EPOCH, ()))

    def beat(self, name: str, stored_bytes: int) -> None:
        self.replication.handle(replication.Beat(name, f"{name}/1", stored_bytes, 10**9 - stored_bytes, 0, 0, ()))

    async def at_rest(self) -> int:
        """Waits until no view has been taken for some time. Returns their number."""
        while True:
            before = self.views
            await asyncio.sleep(0.6)
            if self.views == before:
                return before


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    tasks = [asyncio.create_task(made.replication.run()), asyncio.create_task(made.handover.run())]
    await asyncio.sleep(0)
    for name in ("a", "b"):
        made.register(name)
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    made.journal.close()


async def test_an_idle_manager_takes_no_view_whatever_bytes_are_reported(scene: Scene) -> None:
    before = await scene.at_rest()
    for number in range(20):
        scene.beat("a", number)
        await asyncio.sleep(0.03)
    assert scene.views == before


async def test_a_change_is_seen_at_once_and_many_changes_together(scene: Scene) -> None:
    before = await scene.at_rest()
    groups = [GroupId("job", 0, partition) for partition in range(50)]
    for group in groups:
        scene.replication.handle(replication.Resolve(group, "a", JobSettings()))
    assert scene.handover.core.view.groups.keys() == set(), "not while the replication manager handles its event"
    await until(lambda: scene.handover.core.view.groups.keys() == set(groups), "the groups are seen", 1.0)
    assert scene.views - before <= 2


async def test_a_worker_that_falls_silent_is_seen(scene: Scene) -> None:
    await scene.at_rest()
    scene.replication.runtime.post(replication.StreamBroken("a", "a"))
    await until(lambda: not scene.handover.core.view.workers["a"].live, "its stream has broken", 1.0)
    scene.beat("a", 0)
    await until(lambda: scene.handover.core.view.workers["a"].live, "it is back", 1.0)


async def test_changes_share_a_view_and_a_slow_view_is_not_followed_by_the_next_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "PAUSE_S", 0.2)
    monkeypatch.setattr(views, "PAUSE_MAX_S", 0.2)
    taken: list[float] = []
    loop = asyncio.get_running_loop()
    paced = Views(lambda: taken.append(loop.time()))
    for _ in range(5):
        paced.soon()
    await until(lambda: taken, "the first one needs no pause", 1.0)
    for _ in range(5):
        paced.soon()
        await asyncio.sleep(0)
    await until(lambda: len(taken) == 2, "the second one", 1.0)
    assert taken[1] - taken[0] >= 0.19
    paced.soon()
    paced.cancel()
    await asyncio.sleep(0.3)
    assert len(taken) == 2


def test_what_one_event_writes_and_deletes_is_one_write(tmp_path: Path) -> None:
    """A crash between the two would leave records behind."""
    journal = Journal(tmp_path, bootstrap=True)
    journal.write({"old/1": {}, "old/2": {}})
    before = journal._writes
    once, again = MeasurementsRecord((1.0,), (), (), ()), MeasurementsRecord((2.0,), (), (), ())
    effects: list[Effect] = [Persist("new", once), Persist("old/1", None), Persist("new", again)]
    stored.persist(journal, [*effects, Persist("old/2", None)])
    assert journal._writes == before + 1
    assert dict(journal.items()) == {"new": {"intervals_s": [2.0], "steps": [], "copies": [], "errors": []}}
    with contextlib.suppress(Exception):
        journal.close()
