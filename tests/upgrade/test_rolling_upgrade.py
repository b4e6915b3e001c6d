"""Daemons of an older revision are upgraded one by one under a running query, and go back in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rhino_core.rpc.channel import aio_channel
from rhino_core.security.sources import new_cluster_key
from rhino_pb import handover_pb2, handover_pb2_grpc
from tests.upgrade.deployment import WORKERS, Deployment
from tests.upgrade.query import JOB, PARTITIONS, Query, load
from tests.upgrade.revisions import BEFORE_THE_PROTOCOL, FIRST_OF_THE_PROTOCOL, PLAIN_PUSHES
from tests.worker_runtime.cluster import ROOT

pytestmark = pytest.mark.timeout(900)  # forty starts of daemons
PREFERRED = ("--push-encryption", "preferred")
MANAGER_FIRST, SIDECARS_FIRST = ("manager", *WORKERS), (*WORKERS, "manager")
CASES = [
    pytest.param(revision, order, id=f"{revision[:7]}, {name}", marks=() if usual else pytest.mark.exhaustive)
    for revision, order, name, usual in (
        (BEFORE_THE_PROTOCOL, MANAGER_FIRST, "manager first", True),
        (BEFORE_THE_PROTOCOL, SIDECARS_FIRST, "sidecars first", False),
        (FIRST_OF_THE_PROTOCOL, MANAGER_FIRST, "manager first", False),
        (FIRST_OF_THE_PROTOCOL, SIDECARS_FIRST, "sidecars first", False),
    )
]


@pytest.mark.parametrize(("older", "order"), CASES, indirect=["older"])
async def test_every_commit_is_acknowledged_and_kept_through_an_upgrade_and_its_way_back(
    older: Path, order: Sequence[str], tmp_path: Path
) -> None:
    async with Deployment(tmp_path, older) as deployment:
        query = Query(deployment)
        async with query.running():
            await settled(deployment, query)
            for number, name in enumerate(order, 1):
                await deployment.restart(name, ROOT)
                await settled(deployment, query)
                if number == len(order) // 2:  # half of them
                    await both_command_lines_see_it(deployment, older)
                    await handed_over(deployment, query)
            for name in reversed(order):
                await deployment.restart(name, older)
                await settled(deployment, query)
        await every_worker_can_load(deployment, query)


@pytest.mark.parametrize("older", [pytest.param(PLAIN_PUSHES, id="plain pushes")], indirect=True)
async def test_files_become_encrypted_without_a_pause(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With certificates: first every sidecar prefers encryption, then each may require it, which is the default."""
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(key))  # for this process's own calls
    async with Deployment(tmp_path, older, cluster_key=key) as deployment:
        query = Query(deployment)
        async with query.running():
            await settled(deployment, query)
            await deployment.restart("manager", ROOT)
            for options in (PREFERRED, (), PREFERRED):
                for name in WORKERS:
                    await deployment.restart(name, ROOT, *options)
                    await settled(deployment, query)
            for name in (*WORKERS, "manager"):
                await deployment.restart(name, older)
                await settled(deployment, query)
        await every_worker_can_load(deployment, query)


async def settled(deployment: Deployment, query: Query) -> None:
    """The query has gone on, and all is whole, as the guide says before the next process."""
    await query.reached(3)
    await deployment.until_whole()


async def both_command_lines_see_it(deployment: Deployment, older: Path) -> None:
    for tree in (older, ROOT):
        status = await deployment.ask(tree, "status")
        assert {worker["worker_id"]: worker["state"] for worker in status["workers"]} == dict.fromkeys(WORKERS, "live")
        assert [job["job"] for job in status["jobs"]] == [JOB]


async def handed_over(deployment: Deployment, query: Query) -> None:
    """The first virtual node runs on another worker in the end."""
    target = next(worker for worker in WORKERS if worker != query.places[0])
    async with aio_channel(deployment.address) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        request = handover_pb2.HandoverRequest(job=JOB, virtual_nodes=["0/0"], target=target, deadline_s=60)
        started = await stub.StartHandover(request, timeout=20)
        watched = handover_pb2.WatchHandoverRequest(handover_id=started.handover_id)
        statuses = [status async for status in stub.WatchHandover(watched, timeout=90)]
    assert statuses[-1].phase == handover_pb2.HANDOVER_PHASE_CONFIRMED, statuses[-1]
    assert query.places[0] == target


async def every_worker_can_load(deployment: Deployment, query: Query) -> None:
    """Every version that is still needed, from its own disk or from a peer's."""
    for name in WORKERS:
        async with deployment.sidecars[name].attach(patient=True) as client:
            for partition in range(PARTITIONS):
                for number in range(query.oldest, query.newest + 1):
                    await load(client, partition, number)
