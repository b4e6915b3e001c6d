"""The query of the Spark benchmarks: `groupBy(k).agg(max(p))` over incompressible values, and the cluster it runs on.

Its state is built up first, in large batches; small batches follow without a restart. They update keys at random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.snapshots import Snapshot, between_compactions, whole_snapshots
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.network import Namespaces
from rhino.testing.query_watch import Batch, QueryWatch, RunError

QUERY_NAME = "recovery"
PARTITIONS = 6
WORKERS = 3
ROWS_PER_BATCH = 600
KEYS_PER_ROW = 256  # while the state is built up
VALUE_BYTES = 1024
SETTLED_BATCHES = 8  # after the last that built
SNAPSHOT_BATCHES = 10  # Spark writes a snapshot of every partition with each tenth version
MIDWAY = range(4, 8)  # versions after a snapshot
MIDWAY_MAX = 30  # snapshots that are waited for until one is whole in time
WARM_BATCHES = 54  # in all: 4 GB take about so many, and with fewer the executors' code is not as warm
COMPACTION_BATCHES = 100  # after building: partitions may never be between two compactions all at once
LOGGING = """
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{UNIX_MILLIS} %p %c{1}: %m%n
rootLogger.level = warn
logger.state.name = org.apache.spark.sql.execution.streaming.state
logger.state.level = info
logger.rhino.name = rhino.spark
logger.rhino.level = info
"""  # of log4j
SESSION_CONF = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": str(SNAPSHOT_BATCHES),
    "spark.sql.streaming.minBatchesToRetain": "20",  # several times the state must fit on the disk
}


@dataclass(frozen=True, slots=True)
class Load:
    """`state_bytes` of values in as many keys as it takes."""

    state_bytes: int

    @property
    def building_batches(self) -> int:
        return max(1, round(self.state_bytes / VALUE_BYTES / KEYS_PER_ROW / ROWS_PER_BATCH))

    @property
    def building_rows(self) -> int:
        return self.building_batches * ROWS_PER_BATCH

    @property
    def keys(self) -> int:
        return self.building_rows * KEYS_PER_ROW


def stream(spark: SparkSession, load: Load) -> DataFrame:
    """The query's result. Rows follow from their number alone, so a retry makes the same ones."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 3)
        .load()
    )
    first = f"value * {KEYS_PER_ROW}"
    keys = (
        f"if(value < {load.building_rows}, sequence({first}, {first} + {KEYS_PER_ROW - 1}), "
        f"array(pmod(xxhash64(value), {load.keys})))"
    )
    # Cheap to make and incompressible: an encryption of nothing under a key that never comes again.
    number = f"value * {KEYS_PER_ROW} + k % {KEYS_PER_ROW}"
    value = (
        f"aes_encrypt(repeat('x', {VALUE_BYTES - 32}), lpad(cast({number} as string), 16, '0'), "
        "'CBC', 'DEFAULT', unhex('00000000000000000000000000000000'))"
    )
    exploded = rows.select("value", F.explode(F.expr(keys)).alias("k"))
    return exploded.select("k", F.expr(value).alias("p")).groupBy("k").agg(F.max("p").alias("p"))


@dataclass(slots=True)
class Doing:
    """The present step of a measurement, for a waiting person, or after an interruption."""

    what: str = "building the state"


@dataclass(slots=True)
class Running:
    """The query on its cluster."""

    cluster: LocalCluster
    spark: SparkSession
    watch: QueryWatch
    load: Load
    checkpoint: Path
    place: Place
    copies: int  # of every file of the state, beside what the query works on
    network: Namespaces | None  # None: the loopback
    doing: Doing

    def wait_until_settled(self) -> None:
        """Built up, and small batches run. Every partition has a snapshot of them, whole wherever copies are kept, and
        RocksDB rests between two compactions; or `COMPACTION_BATCHES` have gone by and it has not.
        """
        last = self.load.building_batches - 1
        self.watch.wait_for_batch(last)
        self.doing.what = "small batches"
        self.watch.wait_for_batch(max(last + SETTLED_BATCHES, WARM_BATCHES))
        self.doing.what = f"waiting for {self.copies} copies of snapshots between two compactions"
        seen: list[dict[int, Snapshot]] = [{} for _ in range(self.place.partitions)]  # by version
        looked = last

        def settled() -> bool:
            nonlocal looked
            committed = self.watch.committed()
            if committed == looked:
                return False
            looked = committed
            for partition, snapshots in enumerate(seen):
                found = whole_snapshots(self._stores(partition), last + 2, self.copies)
                snapshots.update((snapshot.version, snapshot) for snapshot in found)
            if committed >= last + COMPACTION_BATCHES:
                return all(seen)
            return all(between_compactions([snapshots[v] for v in sorted(snapshots)]) for snapshots in seen)

        self.watch.wait_for(settled)
        os.sync()  # state that took hours would be on disk; what is not holds up every fsync of a database

    def wait_between_snapshots(self) -> None:
        """Returns as soon as a batch is logged midway between two snapshots. The first is whole everywhere then.

        The batches around a snapshot take up to twice as long, with Spark's own provider as well: a measurement must
        not fall on one by chance. And executors write a snapshot some seconds after it is made: an earlier load replays
        the changelogs since the snapshot before, too. RunError when snapshots are never in time.
        """
        self.doing.what = "waiting until midway between two whole snapshots"
        first = looked = self.watch.committed()
        whole = -1  # version of a snapshot that is

        def midway() -> bool:
            nonlocal looked, whole
            if (committed := self.watch.committed()) == looked:
                return False
            looked = committed
            since = (committed + 1) % SNAPSHOT_BATCHES
            newest = committed + 1 - since
            if whole == newest:
                return since in MIDWAY
            if self._has_snapshot(newest):
                whole = newest
            if committed > first + MIDWAY_MAX * SNAPSHOT_BATCHES:
                raise RunError(f"of {MIDWAY_MAX} snapshots none was written and copied within {MIDWAY[-1]} batches")
            return False

        self.watch.wait_for(midway)

    def _has_snapshot(self, version: int) -> bool:
        """Whether every partition has it, with as many copies as are kept, or one less than a round older: a partition
        loaded from an older snapshot writes its next ones before those of the others, from then on.
        """
        stores = map(self._stores, range(self.place.partitions))
        oldest = version - SNAPSHOT_BATCHES + 1
        return all(whole_snapshots(found, oldest, self.copies) for found in stores)

    def data_files(self, partitions: Iterable[int]) -> list[Path]:
        """RocksDB's tables in all stored copies of the partitions."""
        return [path for p in partitions for store in self._stores(p) for path in store.rglob("*.sst")]

    def _stores(self, partition: int) -> list[Path]:
        """Folders of the partition's state, wherever there are any."""
        rhino, stock = self.cluster.folder.glob("worker-*/rhino/store/*"), self.checkpoint.glob("state")
        return [root / "0" / str(partition) for root in (rhino if self.cluster.manager else stock)]

    def steady(self, count: int) -> list[Batch]:
        """The newest `count` batches after the build-up."""
        done = self.watch.batches(self.watch.committed())
        return [b for b in done if b.batch_id > self.load.building_batches][-count:]


@dataclass(frozen=True, slots=True)
class Place:
    """`namespaces`: every worker is in a network namespace, else on the loopback."""

    rhino: bool
    namespaces: bool = False
    workers: int = WORKERS
    partitions: int = PARTITIONS


@contextmanager
def running(
    folder: Path, load: Load, place: Place, *, extra: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[Running]:
    """A cluster in `folder` with the query on it, until the context ends. `extra`: Spark settings."""
    folder.mkdir(parents=True)
    checkpoint = folder / "store" / "checkpoint"
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    java = f"-XX:+UseSerialGC -Dlog4j2.configurationFile=file:{logging}"
    shape = ClusterShape(executor_memory_mb=1024)
    with ExitStack() as stack:
        network = stack.enter_context(Namespaces(place.workers)) if place.namespaces else None
        cluster = stack.enter_context(
            LocalCluster(folder, workers=place.workers, rhino=place.rhino, shape=shape, network=network)
        )
        partitions = {"spark.sql.shuffle.partitions": str(place.partitions)}
        conf = SESSION_CONF | partitions | {"spark.executor.extraJavaOptions": java} | dict(extra)
        conf = cluster.conf("rhino benchmark", conf)
        spark = cluster.session("rhino benchmark", conf)
        query = (
            stream(spark, load)
            .writeStream.queryName(QUERY_NAME)
            .outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

        doing = Doing()

        def progressed(committed: int) -> None:
            done = min(committed + 1, load.building_batches)
            say(f"{doing.what}, batch {committed}, state {done * 100 // load.building_batches} %")

        watch = QueryWatch(query, checkpoint, on_poll=progressed, check=cluster.check)
        factor = int(conf.get("spark.rhino.replicationFactor", "1"))
        copies = factor + 1 if place.rhino else 1
        yield Running(cluster, spark, watch, load, checkpoint, place, copies, network, doing)
        query.stop()
