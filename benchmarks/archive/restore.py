"""All workers and their disks are lost: state comes back from S3 over one limited link, and the query goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.archive.store import URL, s3
from benchmarks.cells import GBIT, Row, Say
from benchmarks.overhead.resources import wait_until_archived
from benchmarks.stateful import PARTITIONS, QUERY_NAME, SESSION_CONF, SNAPSHOT_BATCHES, Load, stream
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.network import Namespaces
from rhino.testing.query_watch import QueryWatch
from rhino_core.errors import RhinoError
from rhino_core.security.sources import new_cluster_key
from rhino_core.settings import CLUSTER_KEY_VARIABLE
from spark_connector.query_checkpoint import QueryCheckpoint

CONF = SESSION_CONF | {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.rhino.replicationFactor": "0",
    "spark.rhino.minCopies": "1",
}
ARCHIVE_S = 600.0


def restore(load: Load, folder: Path, say: Say) -> Row:
    """One worker, so all state goes through its link. It needs root. Raises RhinoError."""
    checkpoint = folder / "checkpoint"
    key = folder / "cluster.key"
    new_cluster_key(key)
    os.environ[CLUSTER_KEY_VARIABLE] = str(key)  # of both clusters
    with s3() as store, Namespaces(1, GBIT) as network:
        store.use(network.center)
        with _running(folder / "first", network, load, checkpoint, say) as run:
            run.watch.wait_for_batch(load.building_batches + 2 * SNAPSHOT_BATCHES)  # all have a snapshot of everything
            run.query.stop()
            say("archiving")
            wait_until_archived(run.cluster, QueryCheckpoint(checkpoint).job, ARCHIVE_S)
            first = run.watch.committed() + 1
        shutil.rmtree(folder / "first")
        with _running(folder / "second", network, load, checkpoint, say) as run:
            run.watch.wait_for_batch(first)
            logged_at = (checkpoint / "commits" / str(first)).stat().st_mtime
            row = figures(_loads(run.cluster.log_dir), run.started, GBIT)
            return row | {"first_batch_s": logged_at - run.started}


def figures(loads: Sequence[tuple[float, float, int]], started: float, bits_per_s: int) -> Row:
    """`loads`: begin, end and bytes of each; times in Unix seconds. `loaded_at_s`: seconds after `started`."""
    if not loads:
        raise RhinoError("nothing was loaded from the archive")
    size_bytes, ended = sum(one[2] for one in loads), max(one[1] for one in loads)
    load_s = ended - min(one[0] for one in loads)
    return {
        "loads": len(loads),
        "loaded_bytes": size_bytes,
        "link_bits_per_s": bits_per_s,
        "load_s": load_s,
        "share_of_link": size_bytes * 8 / bits_per_s / load_s,
        "loaded_at_s": ended - started,
    }


def _loads(logs: Path) -> list[tuple[float, float, int]]:
    found = []
    for line in (line for path in logs.glob("sidecar*.log") for line in path.read_text().splitlines()):
        if '"loaded from the archive"' in line:
            fields = json.loads(line)
            end = datetime.fromisoformat(fields["time"]).timestamp()
            found.append((end - fields["duration_s"], end, int(fields["bytes"])))
    return found


class _Running(NamedTuple):
    cluster: LocalCluster
    query: StreamingQuery
    watch: QueryWatch
    started: float  # Unix seconds


@contextmanager
def _running(folder: Path, network: Namespaces, load: Load, checkpoint: Path, say: Say) -> Iterator[_Running]:
    shape = ClusterShape(executor_memory_mb=1024, manager_options=("--archive", URL))
    with LocalCluster(folder, workers=1, shape=shape, network=network) as cluster:
        rows = stream(cluster.session("rhino benchmark", CONF), load)
        writer = rows.writeStream.queryName(QUERY_NAME).outputMode("update").format("noop")
        started = time.time()
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        watch = QueryWatch(query, checkpoint, on_poll=lambda n: say(f"batch {n}"), check=cluster.check)
        yield _Running(cluster, query, watch, started)
        query.stop()
