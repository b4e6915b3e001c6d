"""`python -m examples.guide.branch`: a second query on the state of a running one."""

from __future__ import annotations

from examples.guide.common import endless, run_batches, small_cluster, start
from query_evolution import branch


def main() -> None:
    with small_cluster() as (cluster, spark, folder):
        counts = endless(spark).groupBy("k").count()
        live = start(counts, "live", folder / "live")
        run_batches(live, 3)
        made = branch(cluster.manager, folder / "live", folder / "next")
        print(f"branched after batch {made.batch}: {made.files} files linked, in {made.duration_s:.2f} s")
        print("the branch: batch", run_batches(start(counts, "next", folder / "next"), 2))
        print("the live query: batch", run_batches(live, 2))


if __name__ == "__main__":
    main()
