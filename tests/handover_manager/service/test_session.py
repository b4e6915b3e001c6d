"""What the sessions of drivers tell an operator."""

from __future__ import annotations

from handover_manager.service.session import LATE_MAX, Session, Sessions
from rhino_pb import handover_pb2 as pb

LATE = "Executor heartbeat timed out after 8123 ms"


def test_executors_that_are_removed_for_late_heartbeats_again_and_again_are_told() -> None:
    sessions = Sessions()
    session = Session(1, pb.DriverHello(application_id="app"), "token")
    sessions.open(session)
    for reason in ("Command exited with code 137", *[LATE] * LATE_MAX):
        session.removed(reason)
    assert sessions.notes() == []
    session.removed(LATE)
    (note,) = sessions.notes()
    assert note.startswith(f"application app: Spark has removed {LATE_MAX + 1} executors because their heartbeats")
    assert "rhino conf --no-recovery" in note
    sessions.ended(session)
    assert sessions.notes() == []
