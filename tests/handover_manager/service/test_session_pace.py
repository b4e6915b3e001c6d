"""A driver that invents queries has to wait; others do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from handover_manager.service import session
from handover_manager.service.session import AT_ONCE, CALLERS_MAX, EVERY_S, Pace
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.support.service import JOB, Scene

pytestmark = pytest.mark.timeout(120)


def test_many_at_once_and_then_one_after_the_other() -> None:
    found = Pace()
    assert [found.wait_s("eve", 0.0) for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
    assert [found.wait_s("eve", 0.0) for _ in range(2)] == [EVERY_S, 2 * EVERY_S]
    assert found.wait_s("alice", 0.0) == 0.0
    assert found.wait_s("eve", 1000 * EVERY_S) == 0.0


def test_invented_callers_take_no_memory() -> None:
    found = Pace()
    for number in range(CALLERS_MAX + 10):
        found.wait_s(str(number), 0.0)
    assert len(found._even_at) == CALLERS_MAX


async def test_further_queries_of_a_driver_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "AT_ONCE", 3)
    monkeypatch.setattr(session, "EVERY_S", 3600.0)
    scene = Scene(tmp_path / "journal")
    await scene.open()  # with one query
    try:
        for number in range(5):
            await scene.driver.started(f"invented-{number}", 1)
        async with asyncio.timeout(60):
            while "names too many new queries" not in caplog.text:  # noqa: ASYNC110  a log has no notification
                await asyncio.sleep(0.02)
        known = await scene.stub.ListJobs(pb.ListJobsRequest(), timeout=20)
        assert {job.job for job in known.jobs} == {JOB, "invented-0", "invented-1"}
    finally:
        await scene.close()
