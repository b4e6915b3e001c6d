"""Loads of state, read from lines as Spark 4.3's executors write them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.loads import loads_of, moved_loads, newest_loads, parse, places
from rhino.testing import LocalWorker

STORE = (
    "StateStoreProviderId[ storeId=StateStoreId[ operatorId=0, partitionId={0}, storeName=default ], queryRunId=a-b ]"
)
MANAGER, DATABASE = f"RocksDBFileManager {STORE}", f"ReplicatedRocksDB {STORE}"
JOB = "6ec8dd53-ab01-46af-9c91-f8310ed3be31"
PREPARED = f"Versions: Rhino prepared {JOB}/0/4/default at version 21 in 10.8 ms (SOURCE_REPLICA, 7 bytes fetched)"
LOG = f"""WARNING: Using incubator modules: jdk.incubator.vector
1795260210000 INFO {DATABASE.format(1)}: Loading 20 with stateStoreCkptId: aa-1
1795260210001 INFO {DATABASE.format(1)}: Loaded 20 with uniqueId Some(aa-1)
1795260210200 INFO {PREPARED}
1795260210210 INFO {DATABASE.format(4)}: Loading 21 with stateStoreCkptId: bb-1
1795260210240 INFO {DATABASE.format(1)}: Loading 21 with stateStoreCkptId: aa-2
1795260210241 INFO {DATABASE.format(1)}: Loaded 21 with uniqueId Some(aa-2)
1795260210272 INFO {MANAGER.format(4)}: Loading checkpoint files for version 10 checkpointUniqueId: 4ab6
1795260210374 INFO {MANAGER.format(4)}: Copied 1 files (54799428 bytes) from DFS to local with 0 files reused.
1795260210379 INFO {DATABASE.format(4)}: Opened DB with conf RocksDBConf(20,6,10,false)
1795260210381 INFO {DATABASE.format(4)}: Replaying changelog from version 10 -> Some(21)
1795260210400 INFO {DATABASE.format(4)}: Loaded 21 with uniqueId Some(bb-1)
1795260210500 INFO {DATABASE.format(5)}: Loading 21 with stateStoreCkptId: cc-1
"""


def test_a_load_is_cut_into_its_steps() -> None:
    loads = [load for load in parse("worker-1", LOG.splitlines()) if load.real]
    assert [(load.partition, load.version) for load in loads] == [(4, 21)]
    load = loads[0]
    assert (load.prepare_ms, load.source, load.fetched_bytes, load.copied_bytes) == (10.8, "replica", 7, 54799428)
    assert load.started_ms == 1795260210200 - 10.8
    assert load.fetch_ms + load.open_ms == load.ended_ms - load.started_ms
    assert load.open_ms == 1795260210400 - 1795260210374
    assert load.replayed == 11


def test_a_partition_is_where_its_newest_version_was_loaded() -> None:
    here = list(parse("worker-1", LOG.splitlines()))
    older = list(parse("worker-2", LOG.replace("21", "19").splitlines()))
    assert places(here + older) == {1: "worker-1", 4: "worker-1"}
    assert all(load.partition != 5 for load in here), "it has not ended"


def test_a_partition_has_moved_when_another_executor_of_the_same_worker_loads_it(tmp_path: Path) -> None:
    worker = LocalWorker("worker-1", "127.0.0.1", tmp_path, spark=None)  # type: ignore[arg-type]

    def write(executor: str, log: str) -> None:
        folder = tmp_path / "spark" / "work" / "app-1" / executor
        folder.mkdir(parents=True)
        (folder / "stderr").write_text(log)

    write("2", LOG)
    before = newest_loads(loads_of([worker]))
    assert before[4].executor == "2"
    since_ms = before[4].ended_ms
    assert moved_loads(loads_of([worker]), before, since_ms) == []
    write("3", LOG.replace("17952602", "17952603").replace("21", "22"))
    (moved,) = moved_loads(loads_of([worker]), before, since_ms)
    assert (moved.worker_id, moved.executor, moved.partition) == ("worker-1", "3", 4)
    assert moved_loads(loads_of([worker]), {1: before[1]}, since_ms) == []
