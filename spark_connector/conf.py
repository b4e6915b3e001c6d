"""`rhino_conf()`: the Spark settings required by Rhino, and those for fast recovery, with the reason for each."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rhino_core.setting import check_manager, require
from rhino_core.settings import DEFAULT_SOCKET
from spark_connector.driver_certificate import tls_conf
from spark_connector.jar import ensure_jar
from spark_connector.jar_place import jar_setting
from spark_connector.running_session import check_connect, check_session
from spark_connector.spark_home import spark_jars

CLASSES = "rhino.spark"  # package of the classes that settings name
SPARK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STREAMING = "spark.sql.streaming"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
JOIN_FORMAT = f"{STREAMING}.join.stateFormatVersion"
PROVIDER_CLASSES = {  # by integration mode
    "provider": f"{CLASSES}.RhinoStateStoreProvider",
    "checkpoint": SPARK_PROVIDER,
}
SOCKET = str(DEFAULT_SOCKET)


def join_format(spark_version: str) -> str:
    """Returns the newest state format of stream-stream joins allowed by this Spark.

    Spark 4.2 refuses format 4: it is still under development there.
    """
    return "3" if spark_version.startswith("4.2.") else "4"


def state_conf() -> dict[str, str]:
    """Returns settings of the state store for Rhino, or for a fair comparison with it. They name no Rhino class.

    Raises UnknownError without a supported PySpark.
    """
    return {
        # Unique file names, so that a late or speculative task cannot overwrite another's version. Required.
        f"{STREAMING}.stateStore.checkpointFormatVersion": "2",
        # Rhino replicates the changelog of every batch. Required.
        f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # One store per partition of a join, instead of four.
        JOIN_FORMAT: join_format(spark_jars()[0]),
        # It adds a second file for every file. The sidecar's crc32c replaces it.
        f"{STREAMING}.checkpoint.fileChecksum.enabled": "false",
        # Without the native Hadoop library, the default forks chmod for every file of the query checkpoint.
        f"{STREAMING}.checkpointFileManagerClass": FILE_MANAGER,
        # Keeps stores open between batches. Without it there is no locality.
        f"{STREAMING}.stateStore.unloadOnCommit": "false",
        # By default Spark uploads a data file that is older than minBatchesToRetain again with each snapshot, because
        # another executor may have deleted it. Rhino deletes no file that a kept snapshot references, and refuses a
        # snapshot that references a missing file.
        f"{STREAMING}.stateStore.rocksdb.checkStaleReusedFilesInSnapshot": "false",
        # Snapshots reach the replicas soon, so that changelog replays stay short.
        f"{STREAMING}.stateStore.maintenanceInterval": "3s",
        # Spark measures the age of a snapshot in maintenance intervals. With 3 s it would soon let the tasks themselves
        # upload gigabytes behind a slow link, at the moment when that link has the most to carry.
        f"{STREAMING}.stateStore.forceSnapshotUploadOnLag": "false",
    }


def recovery_conf() -> dict[str, str]:
    """Returns settings that shorten Spark's own part of a recovery, mostly fetch retries and stage resubmission.

    They are for clusters only. A single process cannot recover elsewhere. With a heartbeat every second, Spark would
    also send the first ones before the process is ready, and log errors at its start.
    """
    return {
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
        # A task waits for a slot beside its state, because loading gigabytes elsewhere takes longer. The wait does not
        # apply to lost executors, as it could without Rhino: locations only name live executors.
        "spark.locality.wait": "3s",
        # Otherwise Spark runs all tasks of a query's first batch on the few workers that have read its input, and all
        # state begins there. Later batches run where their state is.
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.stage.maxConsecutiveAttempts": "10",
        "spark.task.maxFailures": "8",
        "spark.network.timeout": "20s",
        # A node that vanishes without a connection reset can only be detected by its silence. The plugin drops its
        # executors when the manager has lost its worker, too (HeartbeatGuard). A fetch from it ends after 5 s.
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "120s",  # by default it is spark.network.timeout
        "spark.shuffle.io.connectionTimeout": "5s",
        "spark.files.fetchFailure.unRegisterOutputOnHost": "true",
        # When a task fails on a live worker, say for a full disk, Spark retries it there at once, because its state is
        # there. All attempts would fail before the locality wait is over. These settings exclude the
        # worker for that task and batch only: not for longer, and not because of tasks that would fail on any worker.
        "spark.excludeOnFailure.taskAndStage.enabled": "true",
        "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "3",
        "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
        "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1000000",
        "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "1000000",
        # Reports the task's error soon after it has failed on all workers, instead of after two minutes.
        "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "5s",
    }


@dataclass(frozen=True, slots=True)
class CommitRules:
    """When a commit of state returns."""

    min_copies: int | None = None  # workers that must have the version; None: min(2, replication_factor + 1)
    below_min_copies: str = "degraded"  # with too few copies left: go on with those ("degraded"), or wait ("block")
    durability: str = "replicated"  # a copy counts when it is in the page cache ("replicated") or fsynced ("synced")

    def check(self, replication_factor: int) -> None:
        """Raises InvalidSettingError."""
        most = replication_factor + 1
        given = self.min_copies
        require(given is None or 1 <= given <= most, "commits.min_copies", given, f"1 to {most} (r + 1)")
        require(
            self.below_min_copies in ("degraded", "block"),
            "commits.below_min_copies",
            self.below_min_copies,
            "'degraded' or 'block'",
        )
        require(
            self.durability in ("replicated", "synced"),
            "commits.durability",
            self.durability,
            "'replicated' or 'synced'",
        )

    def conf(self) -> dict[str, str]:
        copies = {} if self.min_copies is None else {"spark.rhino.minCopies": str(self.min_copies)}
        rules = {"spark.rhino.belowMinCopies": self.below_min_copies, "spark.rhino.durability": self.durability}
        return rules | copies


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time-outs of Spark's side of Rhino, in seconds."""

    manager_s: float = 60.0  # a starting driver waits for its manager
    commit_s: float = 60.0  # a commit waits for copies
    prepare_s: float = 120.0  # a load waits for missing files

    def check(self) -> None:
        """Raises InvalidSettingError."""
        for name, seconds in asdict(self).items():
            require(seconds > 0, f"timeouts.{name}", seconds, "above 0")

    def conf(self) -> dict[str, str]:
        return {f"spark.rhino.{name.removesuffix('_s')}Timeout": f"{value:g}" for name, value in asdict(self).items()}


def rhino_conf(
    manager: str,
    *,
    socket: str = SOCKET,
    replication_factor: int = 1,
    commits: CommitRules = CommitRules(),
    timeouts: Timeouts = Timeouts(),
    recovery: bool = True,
    integration: str = "provider",
    jar: str | Path | None = None,
) -> dict[str, str]:
    """Returns settings for `SparkSession.builder.config(map=...)`.

    `manager`: "host:port", or several with commas. For `local[*]` and notebooks without a manager, see
    `local_session`. `socket`: path of the sidecar's socket on every node. "{host}" in it is replaced by the
    executor's host. `replication_factor`: number of secondary copies. `recovery`: whether to add the settings of
    `recovery_conf`. It changes timeouts and retries of the whole application. `integration`: "provider" (any
    checkpointLocation, all operators except transformWithState) or "checkpoint" (Spark's own provider, all
    operators, and a checkpointLocation from `rhino_checkpoint`). `jar`: a file, a URL for Spark (text, not a Path),
    or "ivy://GROUP:ARTIFACT:VERSION" for a package in a Maven repository; by default this package's jar. It is
    built if it is missing.

    The driver's certificate is named by RHINO_DRIVER_TLS_DIR, or made from the key in RHINO_CLUSTER_KEY.

    Raises InvalidSettingError, and UnknownError without a supported PySpark or without Java. Raises PreconditionError
    if a session without Rhino, or Spark Connect, runs in this process: it would take only some of the settings.
    """
    check_connect({})
    check_session()
    settings = application_settings(
        manager,
        socket=socket,
        replication_factor=replication_factor,
        commits=commits,
        timeouts=timeouts,
        recovery=recovery,
        integration=integration,
        jar=jar,
    )
    return settings | tls_conf(os.environ)


def application_settings(
    manager: str,
    *,
    socket: str = SOCKET,
    replication_factor: int = 1,
    commits: CommitRules = CommitRules(),
    timeouts: Timeouts = Timeouts(),
    recovery: bool = True,
    integration: str = "provider",
    jar: str | Path | None = None,
) -> dict[str, str]:
    """The same as `rhino_conf`, for an application in another process: a session in this one does not matter."""
    _check_places(manager, socket, integration)
    require(replication_factor >= 0, "replication_factor", replication_factor, "0 or more")
    commits.check(replication_factor)
    timeouts.check()
    return {
        **_classes(integration, jar),
        "spark.rhino.manager": manager,
        "spark.rhino.socket": socket,
        "spark.rhino.replicationFactor": str(replication_factor),
        **commits.conf(),
        **timeouts.conf(),
        **state_conf(),
        **(recovery_conf() if recovery else {}),
    }


def _classes(integration: str, jar: str | Path | None) -> dict[str, str]:
    place, value = jar_setting(jar if jar is not None else ensure_jar(say=True))
    return {
        place: value,
        "spark.plugins": f"{CLASSES}.RhinoPlugin",
        f"{STREAMING}.stateStore.providerClass": PROVIDER_CLASSES[integration],
        "spark.hadoop.fs.rhino.impl": f"{CLASSES}.RhinoFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.rhino.impl": f"{CLASSES}.RhinoAbstractFileSystem",
    }


def _check_places(manager: str, socket: str, integration: str) -> None:
    check_manager(manager)
    require(integration in PROVIDER_CLASSES, "integration", integration, " or ".join(map(repr, PROVIDER_CLASSES)))
    require(socket.startswith("/"), "socket", socket, "an absolute path")
