"""Publishes logged batches in parts: one of 1000 groups takes 25 ms, and heartbeats have their turn meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator

from handover_manager.events import PublishLogged
from rhino_core.ids import GroupId, StoreVersion
from rhino_core.turns import Turns

GROUPS_AT_ONCE = 200


class Publishing:
    """Publishes batches in the order of their addition."""

    def __init__(self, publish: Callable[[PublishLogged], None], turns: Turns) -> None:
        """`publish`: for one part. It must not raise."""
        self._publish = publish
        self._turns = turns
        self._added: asyncio.Queue[PublishLogged] = asyncio.Queue()

    def add(self, batch: PublishLogged) -> None:
        self._added.put_nowait(batch)

    async def run(self) -> None:
        """Publishes until cancelled. Added batches are then lost: the next ones say the same and more."""
        while True:
            batch = await self._added.get()
            for part in parts_of(batch, GROUPS_AT_ONCE):
                await self._turns.take()
                self._publish(part)


def parts_of(batch: PublishLogged, groups: int) -> Iterator[PublishLogged]:
    """The batch in parts of so many groups. Versions and floors of one group are in one part."""
    versions: dict[GroupId, list[StoreVersion]] = {}
    floors: dict[GroupId, list[StoreVersion]] = {}
    for version in batch.versions:
        versions.setdefault(version.store.group, []).append(version)
    for floor in batch.floors:
        floors.setdefault(floor.store.group, []).append(floor)
    names = list(dict.fromkeys((*versions, *floors)))
    for start in range(0, max(len(names), 1), groups):
        part = names[start : start + groups]
        yield dataclasses.replace(
            batch,
            versions=tuple(version for name in part for version in versions.get(name, ())),
            floors=tuple(floor for name in part for floor in floors.get(name, ())),
        )
