"""`rhino_conf()`: every Spark setting that Rhino needs, and those it recovers fast with, each with its reason."""

from __future__ import annotations

from pathlib import Path

from rhino.errors import InvalidSettingError
from rhino.settings import check_address, require
from spark_connector.jar import ensure_jar, spark_jars

PACKAGE = "org.apache.spark.sql.execution.streaming.state"
STREAMING = "spark.sql.streaming"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
JOIN_FORMAT = f"{STREAMING}.join.stateFormatVersion"
WAYS = {"provider": f"{PACKAGE}.RhinoStateStoreProvider", "checkpoint": f"{PACKAGE}.RocksDBStateStoreProvider"}
DEFAULT_SOCKET = "/run/rhino/sidecar.sock"


def join_format(spark_version: str) -> str:
    """The newest state format of stream-stream joins that this Spark takes: 4.2 refuses 4 as under development."""
    return "3" if spark_version.startswith("4.2.") else "4"


def state_conf() -> dict[str, str]:
    """Settings of the state store that Rhino (or a fair comparison with it) needs; no Rhino class among them.

    Raises UnknownError without a supported PySpark.
    """
    return {
        # Unique file names: a late or speculative task can never overwrite another's version. Required.
        f"{STREAMING}.stateStore.checkpointFormatVersion": "2",
        # A changelog with every batch is what is replicated. Required.
        f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # One store per partition of a join instead of four.
        JOIN_FORMAT: join_format(spark_jars()[0]),
        # A second file per file; the sidecar's crc32c replaces it.
        f"{STREAMING}.checkpoint.fileChecksum.enabled": "false",
        # Without the native Hadoop library the default one forks chmod for every file of the query checkpoint.
        f"{STREAMING}.checkpointFileManagerClass": FILE_MANAGER,
        # Stores stay open between batches: without it there is no locality.
        f"{STREAMING}.stateStore.unloadOnCommit": "false",
        # Spark's default uploads every data file again with each snapshot once it is older than minBatchesToRetain, for
        # another executor may have deleted it. Here nobody deletes what a kept snapshot names, nor names what is gone.
        f"{STREAMING}.stateStore.rocksdb.checkStaleReusedFilesInSnapshot": "false",
        # Snapshots leave for the replicas soon, so that replays stay short.
        f"{STREAMING}.stateStore.maintenanceInterval": "3s",
    }


def recovery_conf() -> dict[str, str]:
    """Settings that keep Spark's own part of a recovery short: fetch retries and stage resubmission dominate it."""
    return {
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
        # Long enough for a task to wait for its state, short enough not to stall a batch after a loss.
        "spark.locality.wait": "500ms",
        "spark.stage.maxConsecutiveAttempts": "10",
        "spark.task.maxFailures": "8",
        "spark.network.timeout": "20s",
        # A worker that vanishes without a reset is known by its silence alone: its executors are dropped after 8 s, and
        # a fetch from it ends after 5 s. Longer than pauses of a healthy JVM; a wrong guess costs time only.
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
        "spark.network.timeoutInterval": "1s",
        "spark.shuffle.io.connectionTimeout": "5s",
        "spark.files.fetchFailure.unRegisterOutputOnHost": "true",
    }


def rhino_conf(
    manager: str | None = None,
    *,
    socket: str = DEFAULT_SOCKET,
    replication_factor: int | None = None,
    min_copies: int | None = None,
    below_min_copies: str = "degraded",
    durability: str = "replicated",
    placement: str = "state",
    manager_timeout_s: float = 60.0,
    commit_timeout_s: float = 60.0,
    prepare_timeout_s: float = 120.0,
    through: str = "provider",
    jar: Path | None = None,
) -> dict[str, str]:
    """Settings for `SparkSession.builder.config(map=...)`.

    `manager`: "host:port". Without one, a manager and a sidecar are started beside this process, for `local[*]` and
    notebooks, and end with it (`spark_connector.embedded`). `socket`: the sidecar's socket on every node; "{host}" in
    it becomes the executor's host. `replication_factor`: secondary copies, default 1 (0 when embedded).
    `durability`: a worker's copy counts from its page cache ("replicated") or once it is fsynced ("synced").
    `placement`: every copy has the whole state ("state"), or its files are spread ("block", to measure against).
    `manager_timeout_s`: how long a driver that starts waits for its manager; `commit_timeout_s`: a commit for copies;
    `prepare_timeout_s`: a load for missing files.
    `through`: "provider" (any checkpointLocation, all operators but transformWithState) or "checkpoint" (Spark's own
    provider, all operators; the checkpointLocation is written with `rhino_checkpoint`).
    `jar`: default: the one of this package, built when missing. Raises InvalidSettingError.
    """
    if manager is None:
        from spark_connector.embedded import embedded

        require(socket == DEFAULT_SOCKET, "socket", socket, "left out when there is no manager")
        require(
            replication_factor in (None, 0), "replication_factor", replication_factor, "0 or left out when embedded"
        )
        daemons = embedded()
        manager, socket, replication_factor = daemons.manager, str(daemons.socket), 0
    factor = 1 if replication_factor is None else replication_factor
    check_address("manager", manager)
    require(factor >= 0, "replication_factor", factor, "0 or more")
    require(min_copies is None or 1 <= min_copies <= factor + 1, "min_copies", min_copies, f"1 to {factor + 1} (r + 1)")
    require(below_min_copies in ("degraded", "block"), "below_min_copies", below_min_copies, "'degraded' or 'block'")
    require(durability in ("replicated", "synced"), "durability", durability, "'replicated' or 'synced'")
    require(placement in ("state", "block"), "placement", placement, "'state' or 'block'")
    require(through in WAYS, "through", through, " or ".join(map(repr, WAYS)))
    timeouts = {"manager": manager_timeout_s, "commit": commit_timeout_s, "prepare": prepare_timeout_s}
    for name, seconds in timeouts.items():
        require(seconds > 0, f"{name}_timeout_s", seconds, "above 0")
    require(socket.startswith("/"), "socket", socket, "an absolute path")
    _check_jar(jar)
    conf = {
        "spark.jars": str(jar or ensure_jar(say=True)),
        "spark.plugins": f"{PACKAGE}.RhinoPlugin",
        f"{STREAMING}.stateStore.providerClass": WAYS[through],
        "spark.hadoop.fs.rhino.impl": f"{PACKAGE}.RhinoFileSystem",
        "spark.rhino.manager": manager,
        "spark.rhino.socket": socket,
        "spark.rhino.replicationFactor": str(factor),
        "spark.rhino.belowMinCopies": below_min_copies,
        "spark.rhino.durability": durability,
        "spark.rhino.placement": placement,
        **{f"spark.rhino.{name}Timeout": str(seconds) for name, seconds in timeouts.items()},
        **state_conf(),
        **recovery_conf(),
        # A task rather waits for a slot beside its state, while others load theirs, than fetch gigabytes elsewhere. It
        # does not wait for an executor that is gone, as it might without Rhino: locations are of such as live.
        "spark.locality.wait": "3s",
    }
    if min_copies is not None:
        conf["spark.rhino.minCopies"] = str(min_copies)
    return conf


def _check_jar(jar: Path | None) -> None:
    if jar is not None and not jar.is_file():
        raise InvalidSettingError(
            f"setting jar = {str(jar)!r}: no such file; python -m spark_connector.build_jar makes it"
        )
