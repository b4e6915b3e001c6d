"""`python -m examples.guide.restructure`: a query goes on with one more stateful operator, and keeps its counts."""

from __future__ import annotations

import time

from examples.guide.common import endless, run_batches, small_cluster, start
from query_evolution import restructure, sketch
from rhino import HandoverClient


def main() -> None:
    with small_cluster() as (cluster, spark, folder):
        rows = endless(spark)
        former = start(rows.groupBy("k").count(), "counts", folder / "former")
        run_batches(former, 3)
        new = rows.dropDuplicates(["value"]).groupBy("k").count()
        planned = sketch(new, folder / "former", folder / "sketch", output_mode="update")
        former.stop()
        with HandoverClient(cluster.manager) as client:
            while any(job.connected for job in client.jobs()):  # until the manager knows of the end
                time.sleep(0.1)
        made = restructure(cluster.manager, folder / "former", folder / "new", planned)
        for one in made.operators:
            print(f"operator {one.old} -> {one.new}: {one.fate}, {one.name}")
        print("the new code: batch", run_batches(start(new, "counts", folder / "new"), 2))


if __name__ == "__main__":
    main()
