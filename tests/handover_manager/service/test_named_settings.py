"""Whose settings hold for a job: those of the session that runs it."""

from __future__ import annotations

from handover_manager import events as ev
from handover_manager.view import TaskGroup
from rhino_core.ids import JobSettings
from workloads.adaptation.scene import JOB, Cluster, Play

GROUPS = (TaskGroup(0, (0,), 1),)


def started(play: Play, settings: JobSettings | None, *, unplanned: bool = False) -> list[ev.NameSettings]:
    groups = () if unplanned else GROUPS
    play(ev.QueryStarted(2, "app", JOB, "run-2", "q", groups, unplanned, settings))
    return play.of(ev.NameSettings)


def test_a_query_that_starts_names_the_settings_of_its_session() -> None:
    play = Play(Cluster("w1", "w2"))
    assert started(play, JobSettings(2)) == [ev.NameSettings(JOB, JobSettings(2))]


def test_so_does_one_that_has_no_batch_yet() -> None:
    play = Play(Cluster("w1", "w2"))
    assert started(play, JobSettings(2), unplanned=True) == []  # nobody knows the job
    started(play, JobSettings(2))
    assert started(play, JobSettings(0), unplanned=True) == [ev.NameSettings(JOB, JobSettings(0))]


def test_a_driver_that_says_nothing_changes_nothing() -> None:
    assert started(Play(Cluster("w1", "w2")), None) == []
