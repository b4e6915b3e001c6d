"""Which workers are present (replication_manager/protocol/workers/membership.py)."""

from __future__ import annotations

from replication_manager.protocol.workers.membership import LeaseTimes, Membership
from tests.replication_manager.protocol.harness import worker


def test_a_worker_that_came_back_empty_is_there_and_what_it_was_before_is_not() -> None:
    membership = Membership(LeaseTimes(5.0, 1.0))
    membership.register(worker("a"), "a-1", (), 0.0)
    assert membership.is_present(worker("a"))
    membership.register(worker("a", incarnation=2), "a-2", (), 1.0)
    assert not membership.is_present(worker("a"))
    assert membership.is_present(worker("a", incarnation=2))
