"""`python -m examples.guide.integration`: the same query in both modes of integration, in one session."""

from __future__ import annotations

from examples.guide.common import endless, run_batches, small_cluster, start
from rhino import rhino_checkpoint

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
OF_SPARK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    with small_cluster() as (_, spark, folder):
        counts = endless(spark).groupBy("k").count()
        query = start(counts, "by-provider", folder / "by-provider")
        print("by the provider: batch", run_batches(query, 3))
        print("rhinoCommitMs:", query.lastProgress["stateOperators"][0]["customMetrics"]["rhinoCommitMs"])

        spark.conf.set(PROVIDER, OF_SPARK)
        location = rhino_checkpoint(folder / "by-location")
        print(f"by the checkpoint location, {location}: batch", run_batches(start(counts, "by-location", location), 3))


if __name__ == "__main__":
    main()
