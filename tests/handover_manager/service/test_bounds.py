"""Numbers and lists from outside: what one call may cost the handover manager."""

from __future__ import annotations

import time

import pytest

from handover_manager.plan.planner import parse_nodes
from handover_manager.service.driver_messages import GROUPS_MAX, query_started_of
from rhino_core.errors import InvalidRequestError
from rhino_core.ids import PARTITIONS_MAX
from rhino_core.rpc import gate
from rhino_pb import handover_pb2 as pb


async def started(*groups: tuple[int, int]) -> None:
    """With these task groups: partitions, and operators of each."""
    task_groups = [
        pb.TaskGroup(task_group=number, operators=range(operators), partitions=partitions)
        for number, (partitions, operators) in enumerate(groups)
    ]
    message = pb.QueryStarted(job="q", run_id="r", task_groups=task_groups)
    gate.check(message)
    query_started_of(message, 1, pb.DriverHello())


async def test_a_query_has_no_more_partitions_and_groups_than_a_manager_can_look_after() -> None:
    await started((PARTITIONS_MAX, 2))
    await started((10_000, 4), (10_000, 16))
    with pytest.raises(InvalidRequestError, match=r"partitions = 2147483647"):
        await started((2**31 - 1, 1))
    with pytest.raises(InvalidRequestError, match=f"300000 replica groups.*at most {GROUPS_MAX}"):
        await started((PARTITIONS_MAX, 2), (PARTITIONS_MAX, 0))
    with pytest.raises(InvalidRequestError, match=r"operators = 101 entries"):
        await started((1, 101))


def test_thousands_of_virtual_nodes_are_looked_at_once_each() -> None:
    names = tuple(f"0/{number}" for number in range(50_000))
    begun = time.process_time()
    assert len(parse_nodes("q", names)) == len(names)
    with pytest.raises(InvalidRequestError, match="given twice: 0/7"):
        parse_nodes("q", (*names, "0/7"))
    assert time.process_time() - begun < 5, "a comparison of each with each takes minutes"
