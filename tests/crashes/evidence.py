"""The evidence for a case: Spark's commit log, the sink's files, and the sidecars' word about what they wrote."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import grpc

from rhino.client.overview import Overview
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.rpc.convert import store_version_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from tests.as_manager import as_manager
from tests.chaos import queries
from workloads.nexmark.output import Verdict, compare

CALL_TIMEOUT_S = 5.0


def output(folder: Path, first: int, end: int, *, name: str = "aggregation", value: str = "v") -> Verdict:
    """The output of batches `first` to `end` - 1, row by row, against DuckDB's over the same source.

    `value`: what is added up, as SQL over the source's value `v` and the batch `b`.
    """
    rows, keys = queries.ROWS_PER_BATCH, queries.KEYS
    parts = (folder / name / "output" / str(batch) for batch in range(first, end))
    files = [str(file) for part in parts for file in sorted(part.glob("*.parquet"))]
    batch = r"cast(regexp_extract(filename, '/(\d+)/[^/]+$', 1) as bigint)"
    expected = f"""
        with given as (select v, v // {rows} as b, v * 7919 % {keys} as k from range({end * rows}) t(v)),
        added as (select b, k, count(*) as n, sum({value}) as s, max({value}) as m from given group by all)
        select b, k, cast(sum(n) over so_far as bigint) as n, cast(sum(s) over so_far as bigint) as s,
            max(m) over so_far as m
        from added window so_far as (partition by k order by b) qualify b >= {first}
    """
    with duckdb.connect() as db:
        got = f"select {batch} as b, k, n, s, m from read_parquet($files, filename = true)"
        db.execute(f"create temp table got as {got}", {"files": files})
        db.execute(f"create temp table expected as {expected}")
        return compare(db, "got", "expected")


def writer(folder: Path, overview: Overview, job: str, partition: int, batch: int) -> str:
    """The worker whose executor wrote what the commit log names for a partition of a logged batch; "": none says so."""
    logged = json.loads((folder / "aggregation" / "checkpoint" / "commits" / str(batch)).read_text().splitlines()[-1])
    (checkpoint_id,) = logged["stateUniqueIds"]["0"][partition]
    version = StoreVersion(StoreId(job, 0, partition, "default"), Version(batch + 1, checkpoint_id))
    request = peer_pb2.CheckVersionsRequest(versions=[store_version_to_pb(version)])
    found = []
    for worker in overview.workers:
        with as_manager(worker.worker_id, worker.peer_address) as channel:
            try:
                reply = peer_pb2_grpc.PeerStub(channel).CheckVersions(request, timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                raise AssertionError(f"{worker.worker_id} does not say what it wrote: {error}") from error
        found += [worker.worker_id] if reply.checks[0].written_here else []
    assert len(found) <= 1, f"{found} all say that they wrote {version}"
    return "".join(found)
