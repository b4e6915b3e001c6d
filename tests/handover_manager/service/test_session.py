"""What waits for a driver: the newest of each kind."""

from __future__ import annotations

from handover_manager.events import DriverEffect, NameLost, ProbeSession, PushLocations
from handover_manager.service.session import Session, Sessions
from rhino_pb import handover_pb2 as pb


def opened(sessions: Sessions, number: int) -> Session:
    session = Session(number, pb.DriverHello(application_id="app"), f"token-{number}")
    sessions.open(session)
    return session


async def sent(session: Session) -> list[DriverEffect]:
    """What waits, and then the end."""
    found = []
    async for effect in session.effects():
        found.append(effect)
        session.close()
    return found


async def test_only_the_newest_map_of_a_job_waits_and_the_newest_lost_workers() -> None:
    sessions = Sessions()
    session = opened(sessions, 1)
    for epoch in (1, 2):
        sessions.send(PushLocations(1, "job", epoch, ()))
    sessions.send(ProbeSession(1))
    for lost in (["a"], ["c", "b"]):
        sessions.lost(lost)
    assert await sent(session) == [PushLocations(1, "job", 2, ()), ProbeSession(1), NameLost(1, ("b", "c"))]


async def test_drivers_hear_of_lost_workers_at_changes_and_at_the_start_of_a_session() -> None:
    sessions = Sessions()
    early = opened(sessions, 1)
    sessions.lost([])
    sessions.send(ProbeSession(1))
    assert await sent(early) == [ProbeSession(1)], "nothing has changed"
    sessions.lost(["a"])
    late = opened(sessions, 2)
    assert await sent(late) == [NameLost(2, ("a",))]
