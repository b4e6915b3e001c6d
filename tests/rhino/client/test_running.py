"""When a command about a stopped query refuses it. Only the answers of the manager are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from query_evolution.replace.folder import RestartFolder
from rhino.client import running as module
from rhino.client.running import refuse_running
from rhino_core.errors import ConflictError, PreconditionError, UnknownError
from rhino_pb import common_pb2, handover_pb2, handover_pb2_grpc
from spark_connector.query_checkpoint import QueryCheckpoint

LOST = handover_pb2.JobStatus(job="job", may_return=True)
RUNS = handover_pb2.JobStatus(job="job", connected=True)
STOPPED = handover_pb2.JobStatus(job="job")
Answers = Callable[..., None]


@pytest.fixture
def checkpoint(tmp_path: Path) -> QueryCheckpoint:
    (tmp_path / "metadata").write_text('{"id": "job"}')
    return QueryCheckpoint(tmp_path)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answers:
    def play(*states: handover_pb2.JobStatus) -> None:
        """The last one is the answer from then on."""
        left = list(states)

        def call(*_: object) -> handover_pb2.ListJobsReply:
            return handover_pb2.ListJobsReply(jobs=[left.pop(0) if len(left) > 1 else left[0]])

        monkeypatch.setattr(module, "call_sync", call)

    return play


def test_a_driver_that_was_lost_has_time_to_come_back(checkpoint: QueryCheckpoint, answer: Answers) -> None:
    answer(LOST, LOST, STOPPED)
    refuse_running("127.0.0.1:1", checkpoint)
    answer(LOST, LOST, RUNS)
    with pytest.raises(ConflictError, match="query job: its driver runs it"):
        refuse_running("127.0.0.1:1", checkpoint)


def test_one_that_stays_lost_does_not_block_for_ever(
    checkpoint: QueryCheckpoint, answer: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETURN_S", 0.1)
    answer(LOST)
    with pytest.raises(ConflictError, match="query job: its driver was lost just now and may come back"):
        refuse_running("127.0.0.1:1", checkpoint)


def test_a_manager_that_has_just_started_may_not_know_the_query_yet(
    checkpoint: QueryCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists what it knows. Only its answer to `forget` says that it does not know all."""
    refusals = ["drivers may not have reported yet: try again in 1 s"] * 2
    asked: list[bool] = []

    class Manager:
        def ListJobs(self, request: object, timeout: float) -> handover_pb2.ListJobsReply:
            return handover_pb2.ListJobsReply(jobs=[handover_pb2.JobStatus(job="other", connected=True)])

        def ForgetJob(self, request: common_pb2.ForgetJobRequest, timeout: float) -> None:
            asked.append(request.dry_run)
            if refusals:
                raise PreconditionError(refusals.pop())
            raise UnknownError("job job: nothing is known of it")

    monkeypatch.setattr(handover_pb2_grpc, "HandoverManagerStub", lambda channel: Manager())
    monkeypatch.setattr(module, "call_sync", lambda doing, call: call())
    refuse_running("127.0.0.1:1", checkpoint)
    assert asked == [True] * 3
    monkeypatch.setattr(module, "RETURN_S", 0.0)
    refusals += ["drivers may not have reported yet"] * 2
    with pytest.raises(ConflictError, match="drivers may not have reported yet"):
        refuse_running("127.0.0.1:1", checkpoint)


def test_the_right_to_run_counts_whatever_the_manager_knows(checkpoint: QueryCheckpoint, answer: Answers) -> None:
    answer(STOPPED)
    lock = RestartFolder(checkpoint.folder).lock("run")
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": 7, "user": "u", "host": "h", "says": ""}))
    refuse_running("127.0.0.1:1", checkpoint)
    code = f"import fcntl, sys; f = open({str(lock)!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(ConflictError, match="process 7 of user u on h has the right to run it"):
            refuse_running("127.0.0.1:1", checkpoint)
