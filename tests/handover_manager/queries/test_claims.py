"""One run of a job counts: that of one driver, from one location of the query checkpoint."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.queries.claims import CLAIM_S, canonical
from handover_manager.view import TaskGroup
from rhino_core.errors import InvalidRequestError, PreconditionError, UnknownError
from rhino_core.ids import StoreId, StoreVersion, Version
from workloads.adaptation.scene import JOB, Play, group, pair

G0, G1 = group(0, 0), group(0, 1)
HOME, COPY = "file:/ckpt/q", "file:/ckpt/copy"


@pytest.fixture
def play() -> Play:
    """Session 1 runs the job from HOME."""
    scene = pair()
    scene.begin(location=HOME)
    return scene


def second(play: Play, run_id: str = "run-2", location: str = HOME) -> None:
    """Session 2 reports a run of the same job."""
    play.begin(session=2, run_id=run_id, location=location)


def logged(session: int, run_id: str, number: int, floor: int | None = None, job: str = JOB) -> ev.BatchLogged:
    store = StoreId(job, 0, 0, "default")
    floors = () if floor is None else (StoreVersion(store, Version(floor, f"f{floor}")),)
    versions = (StoreVersion(store, Version(number, f"v{number}")),)
    return ev.BatchLogged(session, JOB, run_id, number - 1, versions, floors=floors)


def runs(play: Play) -> tuple[int | None, str]:
    job = play.core.jobs[JOB]
    return job.run.session, job.run.run_id


# ---- floors


def test_floors_come_from_the_accepted_run_only(play: Play) -> None:
    play(logged(1, "run-1", 9, floor=3))
    (published,) = play.of(ev.PublishLogged)
    assert (published.job, published.batch_id) == (JOB, 8)
    assert ([v.version.version for v in published.versions], [v.version.version for v in published.floors]) == (
        [9],
        [3],
    )
    for late in (logged(1, "run-0", 1000, floor=901), logged(2, "run-1", 1000, floor=901)):
        assert play(late) == []
    second(play)
    assert play(logged(2, "run-2", 1000, floor=901)) == []
    assert play.core.jobs[JOB].logged.newest_id == 8


def test_a_batch_names_versions_of_its_own_job_only(play: Play) -> None:
    with pytest.raises(InvalidRequestError, match="names a version of another job"):
        play(logged(1, "run-1", 9, job="job-b"))


def test_a_session_ends_its_own_queries_only(play: Play) -> None:
    play(ev.QueryEnded(2, JOB, "run-1"))
    play(ev.SessionClosed(2))
    assert runs(play) == (1, "run-1")
    epoch = play.core.jobs[JOB].map.configuration_epoch
    play(ev.QueryIdle(2, JOB, "run-1", epoch))
    assert not play.core.jobs[JOB].idle
    play(ev.QueryIdle(1, JOB, "run-1", epoch))
    assert play.core.jobs[JOB].idle


# ---- two drivers


def test_a_second_driver_is_refused_when_the_first_one_answers(play: Play) -> None:
    second(play)
    assert play.effects == [ev.ProbeSession(1)]
    play.see()
    assert not play.of(ev.RefuseQuery)
    play(ev.SessionAnswered(1))
    (refused,) = play.of(ev.RefuseQuery)
    assert (refused.session, refused.job, refused.run_id) == (2, JOB, "run-2")
    for said in (
        "driver app-1 on host driver-1",
        "since 1970-01-12 13:46:40+00:00",
        "share one state",
        "new checkpoint",
    ):
        assert said in refused.reason
    assert runs(play) == (1, "run-1")
    assert play(logged(1, "run-1", 9)), "the first one goes on"
    play(ev.SessionClosed(1))
    assert runs(play) == (None, "run-1"), "a refused run is not waited for"


def test_a_second_driver_takes_over_at_once_when_the_session_of_the_first_one_breaks(play: Play) -> None:
    second(play)
    play(ev.SessionClosed(1))
    assert runs(play) == (2, "run-2")
    assert [push.session for push in play.of(ev.PushLocations)] == [2]
    play(ev.SessionAnswered(1))
    assert not play.of(ev.RefuseQuery)


def test_a_second_driver_takes_over_when_the_first_one_ends_its_query(play: Play) -> None:
    second(play)
    play(ev.QueryEnded(1, JOB, "run-1"))
    assert runs(play) == (2, "run-2")


def test_a_session_that_stays_open_without_an_answer_counts_as_alive(play: Play) -> None:
    """Its driver hangs; gRPC would have found a vanished one."""
    second(play)
    play.now += CLAIM_S - 1
    second(play)  # reports once more, with its first batch
    assert play.effects == []
    play.now += 1
    effects = play.see()
    assert [e.session for e in effects if isinstance(e, ev.RefuseQuery)] == [2]
    assert not play.see()


def test_a_driver_that_waits_and_goes_is_not_waited_for(play: Play) -> None:
    second(play)
    play(ev.SessionClosed(2))
    play.begin(session=3, run_id="run-3", location=HOME)
    play(ev.QueryEnded(3, JOB, "run-3"))
    play(ev.SessionClosed(1))
    assert runs(play) == (None, "run-1")


def test_of_two_that_wait_the_second_is_checked_against_the_first(play: Play) -> None:
    second(play)
    play.begin(session=3, run_id="run-3", location=HOME)
    play(ev.SessionClosed(1))
    assert runs(play) == (2, "run-2")
    assert play.of(ev.ProbeSession) == [ev.ProbeSession(2)]
    play(ev.SessionAnswered(2))
    assert [(e.session, "app-2" in e.reason) for e in play.of(ev.RefuseQuery)] == [(3, True)]


def test_a_new_run_in_the_same_session_is_accepted(play: Play) -> None:
    play.begin(run_id="run-2", location=HOME)
    assert runs(play) == (1, "run-2")
    play(ev.QueryEnded(1, JOB, "run-1"))
    assert runs(play) == (1, "run-2")


def test_since_when_is_that_of_the_run_also_after_a_restart_of_the_manager(play: Play) -> None:
    since_ms = play.core.jobs[JOB].run.since_ms
    play.now += 60
    after = play.restart()
    after.begin(session=5, location=HOME)
    assert after.core.jobs[JOB].run.since_ms == since_ms
    after.begin(session=5, run_id="run-2", location=HOME)
    assert after.core.jobs[JOB].run.since_ms == since_ms + 60_000


# ---- copies


@pytest.mark.parametrize("running", [True, False])
def test_a_copy_is_refused_also_while_the_original_does_not_run(play: Play, running: bool) -> None:
    if not running:
        play(ev.QueryEnded(1, JOB, "run-1"))
    second(play, location=COPY)
    (refused,) = play.effects
    assert isinstance(refused, ev.RefuseQuery)
    assert f"checkpoint {COPY} has the id of job {JOB} (q), whose checkpoint is {HOME}" in refused.reason
    assert f"`rhino moved --job {JOB} --to {COPY}`" in refused.reason
    assert runs(play) == ((1, "run-1") if running else (None, "run-1"))
    assert play(logged(2, "run-2", 1000, floor=901)) == []


def test_an_unplanned_run_of_a_copy_is_refused(play: Play) -> None:
    play(ev.QueryStarted(2, "app", JOB, "run-2", "q", (), unplanned=True, location=COPY))
    assert play.of(ev.RefuseQuery)


def test_the_location_is_journalled(play: Play) -> None:
    after = play.restart()
    second(after, location=COPY)
    assert after.of(ev.RefuseQuery)
    second(after, location="rhino://file/ckpt/q/")
    assert runs(after) == (2, "run-2")


def test_a_driver_that_does_not_say_where_its_checkpoint_is(play: Play) -> None:
    play(ev.QueryEnded(1, JOB, "run-1"))
    second(play, location="")
    assert runs(play) == (2, "run-2")
    assert play.core.jobs[JOB].location == HOME


def test_the_user_says_that_the_checkpoint_was_moved(play: Play) -> None:
    with pytest.raises(PreconditionError, match="stop the query first"):
        play(ev.CheckpointMoved("q", COPY))
    play(ev.QueryEnded(1, JOB, "run-1"))
    with pytest.raises(InvalidRequestError, match="must be absolute"):
        play(ev.CheckpointMoved("q", "copy"))
    with pytest.raises(UnknownError):
        play(ev.CheckpointMoved("nobody", COPY))
    play(ev.CheckpointMoved("q", "file:///ckpt/copy/"))
    after = play.restart()
    after.begin(session=2, run_id="run-2", location=HOME)
    assert after.of(ev.RefuseQuery)
    second(after, location=COPY)
    assert runs(after) == (2, "run-2")


def test_a_job_that_was_forgotten_begins_anew_anywhere(play: Play) -> None:
    second(play)
    play(ev.QueryEnded(2, JOB, "run-2"))
    play(ev.QueryEnded(1, JOB, "run-1"))
    play(ev.JobForgotten(JOB))
    play.begin(TaskGroup(0, (0,), 1), session=2, location=COPY)
    assert play.core.jobs[JOB].location == COPY


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("/x/q", "file:/x/q"),
        ("file:/x/q/", "file:/x/q"),
        ("file:///x//q", "file:/x/q"),
        ("FILE://localhost/x/q", "file:/x/q"),
        ("rhino://file/x/q", "file:/x/q"),
        ("hdfs://NameNode:8020/q", "hdfs://namenode/q"),
        ("hdfs://namenode:9000/q", "hdfs://namenode:9000/q"),
        ("rhino://hdfs@namenode:8020/q", "hdfs://namenode/q"),
        ("s3a://Bucket/Q x#1?", "s3a://bucket/Q x#1?"),
        ("file:/", "file:/"),
        ("relative/q", "relative/q"),
        ("", ""),
    ],
)
def test_spellings_of_one_location(spelling: str, expected: str) -> None:
    assert canonical(spelling) == expected
    assert canonical(expected) == expected
