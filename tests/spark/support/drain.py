"""Parts of the tests of drain that other tests use as well."""

from __future__ import annotations

from collections import Counter

from pyspark.sql.streaming.query import StreamingQuery

from rhino.testing import LocalCluster
from tests.spark.conftest import wait_for
from tests.spark.run import job

PARTITIONS = 6


NAME = "aggregation"


def loads(running: StreamingQuery, since: int) -> Counter[str]:
    """Rhino's figures of the batches from `since` on, summed."""
    found = Counter[str]()
    for progress in running.recentProgress:
        if progress.batchId >= since:
            for operator in progress.stateOperators:
                found.update({name: value for name, value in operator.customMetrics.items() if "rhino" in name})
    return found


def busiest(cluster: LocalCluster) -> tuple[str, int]:
    """The worker that most virtual nodes are meant to run on, once all have a worker and a holder beside it."""

    def settled() -> bool:
        view = job(cluster, NAME)
        nodes = view.virtual_nodes if view else ()
        return len(nodes) == PARTITIONS and all(n.actual_worker and len(n.holders) > 1 for n in nodes)

    wait_for(settled, "every virtual node has a worker and a replica")
    view = job(cluster, NAME)
    assert view is not None
    return Counter(node.desired_worker for node in view.virtual_nodes).most_common(1)[0]
