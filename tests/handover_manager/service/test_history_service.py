"""What people have done to the cluster, over real gRPC: with who asked for it, also after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handover_manager.queries.history import ACTION_PREFIX, ACTIONS_MAX, ActionRecord, History
from handover_manager.service import service
from rhino import HandoverClient
from rhino.client.query_record import set_owner
from rhino_core.errors import PreconditionError
from rhino_core.security.identity import CALLER, Identity, Role
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.cluster import eventually, until
from tests.handover_manager.support.drain_service import rhino
from tests.handover_manager.support.forget_service import stopped
from tests.handover_manager.support.service import JOB, Scene

pytestmark = pytest.mark.timeout(60)
ALICE = "rhino://c/operator/alice"


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Its calls are made by alice."""
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.0)
    monkeypatch.setattr("handover_manager.service.service._who", lambda: ALICE)
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


async def history(scene: Scene, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((await rhino(scene, "history", "--json", *arguments)).stdout)
    assert {action["by"] for action in found} <= {ALICE}
    return found


async def kinds(scene: Scene, *arguments: str) -> list[object]:
    return [action["kind"] for action in await history(scene, *arguments)]


async def test_a_drain_that_moves_nothing_has_an_entry(scene: Scene) -> None:
    with HandoverClient(scene.manager.address) as client:
        await asyncio.to_thread(client.drain, "w3")
        assert await kinds(scene) == ["drain"]
        await rhino(scene, "drain", "w3", "--cancel")
    assert await kinds(scene, "--worker", "w3") == ["drain", "end of drain"]
    assert await kinds(scene, "--worker", "w1") == []
    lines = (await rhino(scene, "history")).stdout.splitlines()
    assert lines[0].split() == ["WHEN", "WHO", "WHAT", "QUERY", "WORKER", "HANDOVER", "DETAIL", "RESULT"]
    assert ALICE in lines[1]


async def test_a_drain_is_explained_with_who_asked_for_it(scene: Scene) -> None:
    await scene.run_batch()
    with HandoverClient(scene.manager.address) as client:
        before = await asyncio.to_thread(client.explain, JOB, "0/0")
        await asyncio.to_thread(client.drain, before.desired_worker)
        after = await asyncio.to_thread(client.explain, JOB, "0/0")
    assert not any("drain" in reason for reason in before.reasons)
    assert any(reason.startswith(f"drain {before.desired_worker}: asked for at 20") for reason in after.reasons)
    assert after.reasons[-1].endswith(f"by {ALICE}")


async def test_a_forgotten_query_and_its_owner_also_after_a_restart(scene: Scene) -> None:
    await asyncio.to_thread(set_owner, scene.manager.address, JOB, "etl")
    await scene.driver.ended(JOB)
    await eventually(lambda: stopped(scene), "the query has ended")
    for arguments in (("--yes",), ("--undo",), ("--now", "--yes")):
        await rhino(scene, "forget", "--job", JOB, *arguments)
    expected = ["owner", "forget query", "take back forget", "forget query", "query deleted"]

    async def deleted() -> bool:
        return await kinds(scene, "--job", JOB) == expected

    await eventually(deleted, "the query is deleted")
    former = await history(scene)
    assert [action["detail"] for action in former][:2] == ["etl", "deleted after 1 d 0 h"]
    await scene.driver.stop()
    await scene.manager.stop()
    await scene.manager.start()
    assert await history(scene) == former


async def test_a_handover_shows_what_was_measured_beside_its_prediction(scene: Scene) -> None:
    await scene.run_batch()
    started = await scene.start(scene.secondary(0), "0/0")
    watching = asyncio.ensure_future(scene.watch(started.handover_id))
    await until(
        lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{started.plan.steps[0].moves[0].target}", "it is marked"
    )
    await scene.run_batch()
    last = (await watching)[-1]
    assert last.phase == pb.HANDOVER_PHASE_CONFIRMED
    (action,) = await history(scene)
    figures = action["figures"]
    assert isinstance(figures, dict)
    assert figures["total_s"] == last.measured.total_s
    assert (figures["bytes_to_move"], figures["bytes_moved"]) == (0, 0)
    assert figures["predicted_total_s"] is None, "nothing was measured before"
    assert " confirmed: took " in (await rhino(scene, "history")).stdout


async def test_a_refused_call_has_no_entry(scene: Scene) -> None:
    with pytest.raises(PreconditionError, match="stop the query first"):
        await rhino(scene, "forget", "--job", JOB, "--yes")
    assert await kinds(scene) == []


def test_only_the_newest_are_kept() -> None:
    kept = History(0.0)
    for number in range(ACTIONS_MAX + 3):
        effects = kept.add(float(number), ActionRecord("drain", ALICE, worker=f"w{number}"))
    assert len(kept.all()) == ACTIONS_MAX
    assert [getattr(effect, "key", "")[len(ACTION_PREFIX) :] for effect in effects] == ["000000000003", "000000001003"]
    assert History(0.0, kept.all()).all() == kept.all()
    newest = kept.newest("drain", worker=f"w{ACTIONS_MAX}")
    assert newest is not None
    assert newest.told() == f"drain w{ACTIONS_MAX}: asked for at 1970-01-01 00:16:40+00:00 by {ALICE}"


def test_who_calls_is_the_identity_of_the_certificate() -> None:
    token = CALLER.set(Identity("c", Role.OPERATOR, "alice"))
    try:
        assert service._who() == ALICE
    finally:
        CALLER.reset(token)
