"""Sidecars with zones and racks, and one of an older revision without: real processes with one manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino.client.overview import GroupView
from rhino_core.ids import StoreId, Version
from tests.upgrade.deployment import Deployment
from tests.upgrade.revisions import FIRST_OF_THE_PROTOCOL
from tests.worker_runtime.cluster import ROOT, changelog_bytes

pytestmark = pytest.mark.timeout(300)
PLACES = {"a": ("east", "1"), "b": ("east", "2"), "c": ("west", "1"), "d": ("west", "2"), "e": ("north", "1")}
OLD = "old"
WORKERS = (*PLACES, OLD)
REPLICAS = 2
STORES = 3  # of each writer


@pytest.fixture
async def deployment(older: Path, tmp_path: Path) -> AsyncIterator[Deployment]:
    options = {name: ("--zone", zone, "--rack", rack) for name, (zone, rack) in PLACES.items()}
    async with Deployment(tmp_path, ROOT, WORKERS, options=options, trees={OLD: older}) as running:
        yield running


def store(writer: str, number: int) -> StoreId:
    return StoreId("query-of-zones", WORKERS.index(writer), number, "default")


async def commit(deployment: Deployment, writer: str) -> None:
    """The first versions of some stores. A commit returns when two members have it."""
    async with deployment.sidecars[writer].attach(replicas=REPLICAS, patient=True, commit_timeout_s=60) as client:
        for number in range(STORES):
            reply = await client.commit(store(writer, number), Version(1, f"id-{number}"), changelog_bytes(number), [])
            assert reply.copies >= 2


async def groups_of(deployment: Deployment, writer: str) -> list[GroupView]:
    """The groups of a writer, once all their copies are whole."""
    async with asyncio.timeout(60):
        while True:
            found = [g for g in (await deployment.overview()).groups if g.group.operator == WORKERS.index(writer)]
            if len(found) == STORES and all(member.whole for group in found for member in group.members):
                return found
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("older", [pytest.param(FIRST_OF_THE_PROTOCOL, id="without labels")], indirect=True)
async def test_copies_are_in_all_zones_and_an_older_sidecar_works_beside_them(deployment: Deployment) -> None:
    status = {worker.worker_id: (worker.zone, worker.rack) for worker in (await deployment.overview()).workers}
    assert status == {**PLACES, OLD: ("", "")}
    for writer in ("a", "c", "e"):
        await commit(deployment, writer)
        for group in await groups_of(deployment, writer):
            names = [member.worker_id for member in group.members]
            assert names[0] == writer
            assert sorted(status[name][0] for name in names) == ["east", "north", "west"], names
    await commit(deployment, OLD)
    for group in await groups_of(deployment, OLD):
        owner, *others = [member.worker_id for member in group.members]
        assert owner == OLD
        assert len({status[name][0] for name in others}) == REPLICAS, others
