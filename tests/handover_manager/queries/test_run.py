"""With certificates, a job stays with the driver that ran it first, until an operator says otherwise."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from rhino_core.errors import UnknownError
from workloads.adaptation.scene import JOB, Play, pair


@pytest.fixture
def play() -> Play:
    """The driver "etl" has run the job and has stopped it."""
    scene = pair()
    scene.begin(principal="etl")
    scene(ev.QueryEnded(1, JOB, "run-1"))
    return scene


def refused(play: Play, principal: str, session: int = 2) -> str:
    """Session `session` reports a run. Returns why it is refused; empty: it is accepted."""
    play.begin(session=session, run_id=f"run-{session}", principal=principal)
    found = [effect for effect in play.of(ev.RefuseQuery) if effect.session == session]
    assert bool(found) is (play.core.jobs[JOB].run.session != session)
    return found[-1].reason if found else ""


def test_another_driver_is_refused_with_the_way_out(play: Play) -> None:
    reason = refused(play, "adhoc")
    assert "belongs to the driver 'etl'" in reason
    assert f"rhino owner --job {JOB} --to adhoc" in reason
    assert refused(play, "etl", session=3) == ""


def test_the_owner_is_known_after_a_restart_of_the_manager(play: Play) -> None:
    after = play.restart()
    assert after.core.jobs[JOB].owner == "etl"
    assert refused(after, "adhoc")


def test_an_operator_names_another_owner(play: Play) -> None:
    play(ev.OwnerSet("q", "adhoc"))
    after = play.restart()
    assert refused(after, "etl")
    assert refused(after, "adhoc", session=3) == ""


def test_without_an_owner_the_next_driver_gets_the_job(play: Play) -> None:
    play(ev.OwnerSet(JOB, ""))
    assert refused(play, "adhoc") == ""
    play(ev.QueryEnded(2, JOB, "run-2"))
    assert refused(play, "etl", session=3)


def test_a_claim_of_another_driver_never_ends_the_run_of_the_owner() -> None:
    """It is refused at once, and does not wait for the session of the owner to close."""
    scene = pair()
    scene.begin(principal="etl")
    assert refused(scene, "adhoc")
    scene(ev.SessionClosed(1))
    assert scene.core.jobs[JOB].run.session is None


def test_drivers_without_certificates_are_not_told_apart(play: Play) -> None:
    assert refused(play, "") == ""


def test_a_job_that_began_without_certificates_gets_an_owner() -> None:
    scene = pair()
    scene.begin()
    scene(ev.QueryEnded(1, JOB, "run-1"))
    assert refused(scene, "etl") == ""
    assert scene.core.jobs[JOB].owner == "etl"


def test_an_unknown_job_has_no_owner(play: Play) -> None:
    with pytest.raises(UnknownError):
        play(ev.OwnerSet("nobody", "etl"))
