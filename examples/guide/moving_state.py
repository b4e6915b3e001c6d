"""`python -m examples.guide.moving_state`: moves a virtual node of a running query to another worker."""

from __future__ import annotations

from examples.guide.common import endless, run_batches, small_cluster, start
from rhino import HandoverClient


def main() -> None:
    with small_cluster() as (cluster, spark, folder):
        query = start(endless(spark).groupBy("k").count(), "counts", folder / "checkpoint")
        run_batches(query, 3)
        with HandoverClient(cluster.manager) as client:
            node = client.jobs()[0].virtual_nodes[0]
            target = next(one.worker_id for one in cluster.workers if one.worker_id != node.desired_worker)
            started = client.start("counts", [node.virtual_node], target)
            ended = client.wait(started.handover_id)
        print(f"{node.virtual_node}: {node.desired_worker} -> {target}, {ended.phase.value}")
        print(ended.bytes_moved, "bytes moved")
        print("the query goes on: batch", run_batches(query, 2))


if __name__ == "__main__":
    main()
