"""What adaptation sees and says, over real gRPC, by the client and the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rhino import HandoverClient
from rhino.cli.main import app
from rhino_core.errors import UnknownError
from tests.handover_manager.cluster import BatchLoad, eventually
from tests.handover_manager.support.service import JOB, Scene

pytestmark = pytest.mark.timeout(120)
BATCHES = 22  # the first ones under a map are left out, and four windows have four batches each


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.1)
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


async def rhino(scene: Scene, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--manager", scene.manager.address])


async def run(scene: Scene, load: BatchLoad) -> None:
    """Both virtual nodes run on w1, and each batch waits for the one before."""
    with HandoverClient(scene.manager.address) as client:
        for batch_id in range(BATCHES):
            await scene.driver.logged(JOB, batch_id, {0: scene.sidecars["w1"], 1: scene.sidecars["w1"]}, load=load)

            async def settled(batch_id: int = batch_id) -> bool:
                (job,) = await asyncio.to_thread(client.jobs)
                return job.batch_id == batch_id and all(node.actual_worker for node in job.virtual_nodes)

            await eventually(settled, f"batch {batch_id} is known")


async def test_uneven_load_is_seen_and_told(scene: Scene) -> None:
    before = await rhino(scene, "why")
    assert "adaptation observes" in before.stdout
    assert "no decision yet" in before.stdout
    await run(scene, BatchLoad({0: 2.0, 1: 2.0}, batch_s=4.0, trigger_s=5.0))
    with HandoverClient(scene.manager.address) as client:

        async def decided() -> bool:
            decisions = (await asyncio.to_thread(client.decisions, "clicks")).decisions
            outcomes = [one.outcome.value for one in decisions]
            # Windows that end between two views share a decision, so the first ones may have none of their own.
            return outcomes in (["would_move"], ["too_few_windows", "would_move"])

        await eventually(decided, "adaptation says what it would move")
    told = await rhino(scene, "why", "--job", "clicks")
    assert "clicks: would move" in told.stdout
    assert "moves: 0/" in told.stdout
    assert "imbalance 3.00" in told.stdout
    decisions = json.loads((await rhino(scene, "why", "--json", "--last", "1")).stdout)
    assert decisions["mode"] == "observe"
    assert [one["outcome"] for one in decisions["decisions"]] == ["would_move"]
    assert not (await scene.job()).virtual_nodes[0].misses


async def test_the_wanted_number_of_workers_is_told(scene: Scene) -> None:
    unknown = await rhino(scene, "scale")
    assert "how many are wanted is not known yet" in unknown.stdout
    await run(scene, BatchLoad({0: 2.0, 1: 2.0}, batch_s=4.0, trigger_s=5.0))
    told = await rhino(scene, "scale", "--job", "clicks")
    assert "3 workers live, 2 wanted: `rhino drain` empties one" in told.stdout
    assert "a batch would take 2.00 s of 5 s" in told.stdout
    plain = json.loads((await rhino(scene, "scale", "--json")).stdout)
    assert (plain["live"], plain["wanted"]) == (3, 2)
    missing = await rhino(scene, "scale", "--job", "nobody")
    assert isinstance(missing.exception, UnknownError)


async def test_what_a_source_is_behind_is_told_and_nothing_moves_meanwhile(scene: Scene) -> None:
    load = BatchLoad({0: 2.0, 1: 2.0}, batch_s=4.0, trigger_s=5.0, lags={"topic": (900_000, 500)})
    await run(scene, load)
    why = await rhino(scene, "why", "--job", "clicks", "--last", "1")
    assert "clicks: catching up" in why.stdout
    assert "source topic is 900000 offsets behind, or 1800.0 usual batches" in why.stdout
    told = await rhino(scene, "scale")
    assert "900000 offsets of topic" in told.stdout
    assert "1800.0 usual batches behind: no number up to 2 works that off in 10 min" in told.stdout
    (query,) = json.loads((await rhino(scene, "scale", "--json")).stdout)["queries"]
    assert query["lags"] == [{"source": "topic", "unit": "offsets", "behind": 900_000.0, "read": 500.0}]
