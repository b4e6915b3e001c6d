"""Drains, intents and strategies over real gRPC, by the calls, the client and the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino import Drain, HandoverClient, Kind, Phase, Rebalance, Strategy, Weight
from rhino.cli.main import app
from rhino_core.errors import PreconditionError, RhinoError, UnknownError
from rhino_pb import handover_pb2 as pb
from rhino_pb import replication_pb2
from tests.handover_manager.cluster import TIMEOUT_S, FakeDriver, until
from tests.handover_manager.support.drain_service import rhino
from tests.handover_manager.support.service import G0, G1, JOB, Scene

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.5)
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


class Batches:
    """Runs batches where the map says, all the time."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._scene.run_batch()
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_drain_while_the_query_is_idle(scene: Scene) -> None:
    await scene.run_batch()

    async def report_idle() -> None:
        reported = -1
        while True:
            if (epoch := scene.driver.maps[JOB].configuration_epoch) != reported:
                await scene.driver.idle(JOB)
                reported = epoch
            await asyncio.sleep(0.02)

    reporting = asyncio.create_task(report_idle())
    result = await rhino(scene, "drain", "w1", "--wait", "--strategy", "fluid")
    reporting.cancel()
    assert (result.exit_code, "safe to remove" in result.stdout) == (0, True)
    assert (await scene.job()).batch_id == 0
    with HandoverClient(scene.manager.address) as client:
        (ended,) = await asyncio.to_thread(client.list)
    assert [(step.phase, step.confirmed_batch_id) for step in ended.steps] == [(Phase.CONFIRMED, -1)] * 2


async def test_a_drain_in_steps_until_it_is_safe_to_remove(scene: Scene) -> None:
    with HandoverClient(scene.manager.address) as client:
        seen = await asyncio.to_thread(client.drain, "w1", strategy=Strategy(Kind.FLUID))
        assert (seen.draining, seen.safe_to_remove, bool(seen.handover_id)) == (True, False, True)
        again = await asyncio.to_thread(client.drain, "w1")
        assert (again.draining, again.handover_id) == (True, seen.handover_id), "repeating it starts nothing else"
        batches = Batches(scene)
        safe = await asyncio.to_thread(client.wait_until_safe, "w1", timeout_s=20)
        assert safe.blockers == ()
        ended = await asyncio.to_thread(client.wait, seen.handover_id)
        with pytest.raises(PreconditionError, match="w1 is being drained"):
            await asyncio.to_thread(client.plan, JOB, ["0/0"], "w1")
        assert [step.phase for step in ended.steps] == [Phase.CONFIRMED] * 2
        epochs = [step.configuration_epochs[JOB] for step in ended.steps]
        assert epochs[0] < epochs[1]
        assert ended.measured is not None
        assert ended.measured.total_s > 0
        for group in (G0, G1):
            assert "w1" not in await scene.members(group)
        with pytest.raises(PreconditionError, match="needs 2 workers, 1 others take copies"):
            await asyncio.to_thread(client.drain, "w2")
        assert not (await asyncio.to_thread(client.drain_status, "w2")).draining, "refused before it is marked"
        again = await asyncio.to_thread(client.drain, "w1", cancel=True)
        assert (again.draining, again.safe_to_remove) == (False, False)
        plan = await asyncio.to_thread(client.plan, JOB, ["0/0"], "w1")
        assert "2 former steps" in plan.prediction.basis
    await batches.stop()


async def test_a_notice_is_used_as_far_as_it_goes(scene: Scene) -> None:
    """Of three workers one has left before. The copies lack a worker, and the virtual nodes move all the same."""
    batches = Batches(scene)
    first = await rhino(scene, "drain", "w3", "--wait")
    assert first.exit_code == 0
    with pytest.raises(PreconditionError, match="needs 2 workers, 1 others take copies"):
        await rhino(scene, "drain", "w1", "--wait")
    ended = await rhino(scene, "drain", "w1", "--wait", "--notice-s", "2")
    assert ended.exit_code == 1
    assert re.match(r"worker w1 leaves in [01] s: not safe to remove\n  groups that lack whole copies", ended.stdout)
    await batches.stop()
    assert (await scene.owner(G0), await scene.owner(G1)) == ("w2", "w2")
    status = await rhino(scene, "status")
    assert re.search(r"note: worker w1 leaves in [01] s: not safe to remove; groups that lack whole", status.stdout)
    assert "note: worker w3: " in status.stdout


async def test_the_mark_and_the_confirmed_step_outlive_the_manager(scene: Scene) -> None:
    strategy = pb.Strategy(kind="fluid")
    before = await scene.stub.DrainWorker(pb.DrainRequest(worker="w1", strategy=strategy), timeout=TIMEOUT_S)
    await until(lambda: any(scene.driver.hosts(JOB, p)[0] != "host-w1" for p in (0, 1)), "the first marker")
    (first,) = [p for p in (0, 1) if scene.driver.hosts(JOB, p)[0] != "host-w1"]
    await scene.run_batch()
    await until(lambda: scene.driver.hosts(JOB, 1 - first)[0] != "host-w1", "the second marker")
    await scene.driver.stop()
    await scene.manager.stop()
    await scene.manager.start()
    scene.driver = FakeDriver(scene.manager.address)
    await scene.driver.hello()
    await scene.driver.started(JOB, 2, name="clicks")
    await until(lambda: len(scene.driver.hosts(JOB, 1 - first)) > 1, "the map is asserted again")
    assert all(scene.driver.hosts(JOB, p)[0] != "host-w1" for p in (0, 1))
    seen = await scene.stub.GetDrain(pb.GetDrainRequest(worker="w1"), timeout=TIMEOUT_S)
    assert (seen.draining, seen.safe_to_remove) == (True, False)
    await scene.run_batch()
    last = (await scene.watch(before.handover_id))[-1]
    assert [step.phase for step in last.steps] == [pb.HANDOVER_PHASE_CONFIRMED] * 2


async def test_intents_and_strategies_by_the_client(scene: Scene) -> None:
    with HandoverClient(scene.manager.address) as client:
        plan = await asyncio.to_thread(client.plan, "clicks", intent=Rebalance(Weight.COUNT))
        holder = scene.secondary(int(plan.moves[0].virtual_node[-1]))
        assert [(move.origin, move.target) for move in plan.moves] == [("w1", holder)]
        assert (plan.moves[0].bytes_to_move, plan.intent) == (0, "rebalance by count")
        drain = await asyncio.to_thread(client.plan, "", intent=Drain("w1"), strategy=Strategy(Kind.BATCHED, 1))
        assert [len(step.virtual_nodes) for step in drain.steps] == [1, 1]
        assert all(move.why for move in drain.moves)
        started = await asyncio.to_thread(
            client.start, "clicks", intent=Rebalance(Weight.COUNT), strategy=Strategy(start_at_ms=1 << 42)
        )
        assert started.phase is Phase.PLANNED
        cancelled = await asyncio.to_thread(client.cancel, started.handover_id)
        assert cancelled.phase is Phase.CANCELLED


async def test_the_command_line(scene: Scene) -> None:
    batches = Batches(scene)
    planned = await rhino(scene, "plan", "drain", "w1", "--strategy", "fluid", "--json")
    assert [len(step["virtual_nodes"]) for step in json.loads(planned.stdout)["steps"]] == [1, 1]
    shown = await rhino(scene, "plan", "rebalance", "--job", "clicks")
    assert "rebalance by bytes: matched, 1 step," in shown.stdout
    dry = await rhino(scene, "drain", "w1", "--dry-run", "--json")
    assert json.loads(dry.stdout)["drain"]["draining"] is False
    drained = await rhino(scene, "drain", "w1", "--wait", "--strategy", "matched", "--gap", "1b", "--json")
    assert (drained.exit_code, json.loads(drained.stdout)["safe_to_remove"]) == (0, True)
    why = await rhino(scene, "explain", "0/0", "--job", "clicks")
    assert "the owner of its replica groups" in why.stdout
    assert "last handover" in why.stdout
    status = await rhino(scene, "status", "--json")
    by_id = {worker["worker_id"]: worker for worker in json.loads(status.stdout)["workers"]}
    assert by_id["w1"]["draining"] is True
    assert json.loads(status.stdout)["jobs"][0]["misses"] == 0
    cancelled = await rhino(scene, "drain", "w1", "--cancel")
    assert "no longer draining" in cancelled.stdout
    await batches.stop()
    moved = await rhino(scene, "handover", "move", "0/0", "--job", "clicks", "--to", "w1", "--start-in-s", "99")
    assert "planned" in moved.stdout
    handover_id = moved.stdout.split()[0]
    shown = await rhino(scene, "status", "--section", "handovers")
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith(handover_id)]
    assert line.split() == [handover_id, "clicks", "move", "to", "w1", "1", "of", "1", "planned", "0/0"]
    running = await rhino(scene, "handover", "list", "--running")
    assert [line.split()[0] for line in running.stdout.splitlines()] == ["HANDOVER", handover_id]
    (move,) = [
        line for line in (await rhino(scene, "handover", "show", handover_id)).stdout.splitlines() if " w1 " in line
    ]
    assert move.split()[:3] == ["1", "clicks", "0/0"]
    assert "waiting for 0/0" in (await rhino(scene, "handover", "list", "--job", "clicks")).stdout
    gone = await rhino(scene, "handover", "cancel", handover_id)
    assert "cancelled cancelled by request" in gone.stdout
    watched = await rhino(scene, "handover", "watch", handover_id)
    assert (watched.exit_code, "cancelled" in watched.stdout) == (1, True)
    listed = json.loads((await rhino(scene, "handover", "list", "--json")).stdout)
    assert (listed[-1]["handover_id"], listed[-1]["phase"]) == (handover_id, "cancelled")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["plan", "rebalance", "--job", "q", "--by", "size"], "--by 'size': must be one of bytes, rows, time, count"),
        (["plan", "drain", "w1", "--gap", "1.5b"], "--gap '1.5b'"),
        (
            ["plan", "drain", "w1", "--strategy", "slow"],
            "--strategy 'slow': must be one of all_at_once, batched, fluid, matched",
        ),
        (["plan", "drain", "w1", "--start-at", "noon"], "--start-at 'noon'"),
        (["plan", "drain", "w1", "--start-at", "2001-01-01"], "must not be in the past"),
        (["plan", "drain", "w1", "--start-at", "2101-01-01", "--start-in-s", "3"], "--start-at and --start-in-s"),
    ],
)
def test_wrong_options_are_named_before_anybody_is_asked(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(app, [*arguments, "--manager", "127.0.0.1:1"])
    assert isinstance(result.exception, RhinoError)
    assert text in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["move", "--job", "q", "--to", "w1"], "VIRTUAL_NODE"),
        (["move", "0/0", "--job", "q"], "--to"),
        (["move", "0/0", "--to", "w1"], "--job"),
        (["rebalance"], "--job"),
        (["scale-out", "--job", "q"], "WORKER"),
        (["scale-in", "w1"], "--job"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "handover"])
def test_what_an_intent_needs_is_named(command: str, arguments: list[str], missing: str) -> None:
    result = CliRunner().invoke(app, [command, *arguments, "--manager", "127.0.0.1:1"])
    assert (result.exit_code, "Missing" in result.output, missing in result.output) == (2, True, True), result.output


async def test_an_unknown_worker_is_not_marked(scene: Scene) -> None:
    with HandoverClient(scene.manager.address) as client:
        with pytest.raises(UnknownError, match="'w9'"):
            await asyncio.to_thread(client.drain, "w9")
        workers = await scene.replication.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=TIMEOUT_S)
        assert not [worker.worker.worker_id for worker in workers.workers if worker.draining]
