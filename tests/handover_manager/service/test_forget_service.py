"""Forgetting a query over real gRPC, by the command line and the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rhino import HandoverClient
from rhino.cli.main import app
from rhino_core.errors import InvalidRequestError, PreconditionError, RhinoError, UnknownError
from rhino_pb import replication_pb2
from tests.handover_manager.cluster import TIMEOUT_S, FakeDriver, eventually, until
from tests.handover_manager.support.forget_service import jobs, stopped
from tests.handover_manager.support.service import G0, G1, JOB, Scene

pytestmark = pytest.mark.timeout(60)
DAY_S = 24 * 3600.0


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """The query has ended."""
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.0)
    made = Scene(tmp_path / "journal")
    await made.open()
    await made.driver.ended(JOB)
    await eventually(lambda: stopped(made), "the query has ended")
    yield made
    await made.close()


async def rhino(scene: Scene, *arguments: str) -> Result:
    """Raises the error of the command."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--manager", scene.manager.address])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


async def deletions(scene: Scene) -> dict[str, float | None]:
    """Seconds until the state of each query is deleted, by `rhino status --json`."""
    status = json.loads((await rhino(scene, "status", "--json")).stdout)
    return {job["job"]: job["delete_in_s"] for job in status["jobs"]}


async def groups(scene: Scene) -> int:
    reply = await scene.replication.DescribeGroups(replication_pb2.DescribeGroupsRequest(), timeout=TIMEOUT_S)
    return len(reply.groups)


async def test_forget_look_start_undo_start(scene: Scene) -> None:
    planned = json.loads((await rhino(scene, "forget", "--job", "clicks", "--dry-run", "--json")).stdout)
    assert (planned["dry_run"], planned["job"], planned["groups"], planned["left_s"]) == (True, JOB, 2, DAY_S)
    with pytest.raises(InvalidRequestError, match=r"in 1 d 0 h\. Until then --undo takes it back, and the query does"):
        await rhino(scene, "forget", "--job", "clicks")
    assert await deletions(scene) == {JOB: None}, "nobody was there to be asked"

    said = (await rhino(scene, "forget", "--job", "clicks", "--yes")).stdout
    assert f"will be deleted in 1 d 0 h; until then `rhino forget --job {JOB} --undo` takes it back" in said
    left_s = (await deletions(scene))[JOB]
    assert left_s is not None
    assert DAY_S - 60 < left_s < DAY_S
    again = json.loads((await rhino(scene, "forget", "--job", JOB, "--yes", "--json")).stdout)
    assert DAY_S - 60 < again["left_s"] < DAY_S
    shown = (await rhino(scene, "status")).stdout
    assert "note: query clicks is forgotten, and its state is deleted in 23 h 59 min" in shown
    assert "FORGOTTEN" in shown

    await scene.driver.started(JOB, 2, name="clicks", run_id="run-2")
    await until(lambda: scene.driver.refused, "the query is refused")
    (refused,) = scene.driver.refused
    assert (refused.job, refused.run_id) == (JOB, "run-2")
    assert f"job {JOB} (clicks) was forgotten at " in refused.reason
    assert f"`rhino forget --job {JOB} --undo`, and start the query again" in refused.reason

    said = (await rhino(scene, "forget", "--job", "clicks", "--undo")).stdout
    assert said == f"job {JOB}: its state stays. The query can be started again\n"
    assert await deletions(scene) == {JOB: None}
    assert await groups(scene) == 2
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-3")
    await eventually(lambda: running(scene, "run-3"), "the query runs")
    with pytest.raises(UnknownError, match="'clicks' is not forgotten"):
        await rhino(scene, "forget", "--job", "clicks", "--undo")


async def running(scene: Scene, run_id: str) -> bool:
    return any(job.connected and job.run_id == run_id for job in await jobs(scene))


async def test_a_query_with_a_temporary_checkpoint_is_forgotten_when_it_ends(scene: Scene) -> None:
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-2", temporary=True)
    await eventually(lambda: running(scene, "run-2"), "the query runs")
    assert await deletions(scene) == {JOB: None}
    await scene.driver.ended(JOB, run_id="run-2")
    await eventually(lambda: is_forgotten(scene), "it is forgotten")
    left_s = (await deletions(scene))[JOB]
    assert left_s is not None
    assert DAY_S - 60 < left_s <= DAY_S
    shown = (await rhino(scene, "status", "--section", "forgotten")).stdout
    assert "Spark, which deletes temporary checkpoints" in " ".join(shown.split())


async def is_forgotten(scene: Scene) -> bool:
    return (await deletions(scene))[JOB] is not None


async def test_a_driver_that_is_lost_may_return_for_a_while(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [job.may_return for job in await jobs(scene)] == [False]
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 600.0)
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-2")
    await eventually(lambda: running(scene, "run-2"), "the query runs")
    await scene.driver.stop()
    await eventually(lambda: stopped(scene), "the driver is lost")
    assert [job.may_return for job in await jobs(scene)] == [True]


async def test_a_restart_of_the_manager_keeps_what_is_forgotten(scene: Scene) -> None:
    await rhino(scene, "forget", "--job", "clicks", "--yes")
    await scene.driver.stop()
    await scene.manager.stop()
    scene.manager.forget_grace_s = 1.0  # for what is forgotten from now on
    await scene.manager.start()
    left_s = (await deletions(scene))[JOB]
    assert left_s is not None
    assert DAY_S - 60 < left_s <= DAY_S
    scene.driver = FakeDriver(scene.manager.address)
    await scene.driver.hello()
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-2")
    await until(lambda: scene.driver.refused, "the query is refused")
    assert await groups(scene) == 2


async def test_the_state_is_deleted_after_the_grace(scene: Scene) -> None:
    await scene.driver.stop()
    await scene.manager.stop()
    scene.manager.forget_grace_s = 1.0
    await scene.manager.start()
    scene.driver = FakeDriver(scene.manager.address)
    await scene.driver.hello()
    with HandoverClient(scene.manager.address) as client:
        assert (await asyncio.to_thread(client.forget_job, "clicks")).left_s == 1.0
        assert await groups(scene) == 2

        async def deleted() -> bool:
            return await groups(scene) == 0 and await deletions(scene) == {}

        await eventually(deleted, "the state is deleted")
        with pytest.raises(PreconditionError, match="the time to take it back is over, and its state is deleted"):
            await asyncio.to_thread(client.undo_forget_job, JOB)
        with pytest.raises(UnknownError, match="it was forgotten, and its state is deleted already"):
            await asyncio.to_thread(client.forget_job, JOB)


async def test_now_deletes_at_once_also_in_the_grace(scene: Scene) -> None:
    await rhino(scene, "forget", "--job", "clicks", "--yes")
    with pytest.raises(InvalidRequestError, match=r"at once\. It cannot be undone"):
        await rhino(scene, "forget", "--job", "clicks", "--now")
    assert await groups(scene) == 2
    said = (await rhino(scene, "forget", "--job", "clicks", "--now", "--yes")).stdout
    assert f"job {JOB}: the state of 2 replica groups is deleted\n" in said
    assert (await groups(scene), await deletions(scene)) == (0, {})


async def test_copies_of_a_forgotten_query_are_moved_by_a_drain(scene: Scene) -> None:
    await rhino(scene, "forget", "--job", "clicks", "--yes")
    drained = await rhino(scene, "drain", "w1", "--wait")
    assert "safe to remove" in drained.stdout
    for group in (G0, G1):
        assert {"w2", "w3"} <= set(await scene.members(group))


async def test_a_query_that_only_the_sidecars_know_is_listed(scene: Scene) -> None:
    await scene.sidecars["w2"].own(G0._replace(job="other"))
    await rhino(scene, "forget", "--job", "other", "--yes")
    assert (await deletions(scene))["other"] is not None
    assert "query other is forgotten" in (await rhino(scene, "status")).stdout
    await rhino(scene, "forget", "--job", "other", "--undo")
    assert await deletions(scene) == {JOB: None}


async def test_a_query_that_was_started_after_its_state_was_deleted_leaves_the_list(scene: Scene) -> None:
    """Its commits are refused, but its driver has reported it."""
    await rhino(scene, "forget", "--job", "clicks", "--now", "--yes")
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-2")
    await eventually(lambda: running(scene, "run-2"), "the query is known again")
    await scene.driver.ended(JOB, run_id="run-2")
    await eventually(lambda: stopped(scene), "the query has ended")
    await rhino(scene, "forget", "--job", "clicks", "--now", "--yes")
    assert await deletions(scene) == {}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--worker", "w1", "--undo"], "--undo: only with --job"),
        (["--worker", "w1", "--now"], "--now: only with --job"),
        (["--job", "q", "--undo", "--now"], "--undo and --now"),
        (["--job", "q", "--undo", "--dry-run"], "--undo and --dry-run"),
        ([], "--job or --worker"),
    ],
)
def test_options_that_exclude_each_other_are_named(options: list[str], text: str) -> None:
    result = CliRunner().invoke(app, ["forget", *options, "--manager", "127.0.0.1:1"])
    assert isinstance(result.exception, RhinoError)
    assert text in str(result.exception)
