"""The hosts of a driver's executors are told to the replication manager, for placement."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.queries import executors
from tests.handover_manager.scenario import JOB, Play, pair


@pytest.fixture
def play() -> Play:
    return pair()


def change(play: Play, executor: str, host: str, *, removed: bool = False, session: int = 1) -> list[ev.NameHosts]:
    play(ev.ExecutorChanged(session, executor, host, removed))
    return play.of(ev.NameHosts)


def test_hosts_are_told_when_they_change(play: Play) -> None:
    assert change(play, "0", "host-w1") == [ev.NameHosts(JOB, frozenset({"host-w1"}))]
    assert change(play, "1", "host-w1") == []
    assert change(play, "2", "host-w2") == [ev.NameHosts(JOB, frozenset({"host-w1", "host-w2"}))]
    assert change(play, "0", "", removed=True) == []
    assert change(play, "1", "host-w1", removed=True) == [ev.NameHosts(JOB, frozenset({"host-w2"}))]
    assert change(play, "2", "", removed=True) == [], "others will come"


def test_a_query_that_starts_gets_those_of_its_session(play: Play) -> None:
    change(play, "0", "host-w1")
    assert change(play, "0", "host-w3", session=2) == [], "of another application"
    play.begin(job="job-b", name="other", session=2)
    assert play.of(ev.NameHosts) == [ev.NameHosts("job-b", frozenset({"host-w3"}))]


def test_a_session_that_has_closed_is_forgotten(play: Play) -> None:
    change(play, "0", "host-w1")
    play(ev.SessionClosed(1))
    play.begin(session=2)
    assert play.of(ev.NameHosts) == []
    assert change(play, "0", "host-w1", session=2) == [ev.NameHosts(JOB, frozenset({"host-w1"}))]


def test_executors_that_are_remembered_have_a_bound(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "EXECUTORS_MAX", 1)
    change(play, "0", "host-w1")
    assert change(play, "1", "host-w2") == []
    assert change(play, "0", "host-w3") == [ev.NameHosts(JOB, frozenset({"host-w3"}))]
