"""Converts state of Spark's HDFS-backed provider to RocksDB, with Spark's own providers in a JVM of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rhino_core.errors import LostError, NoSpaceError, PreconditionError
from rhino_core.ids import StoreId
from spark_connector.conf import CLASSES, FILE_MANAGER, SPARK_PROVIDER, STREAMING
from spark_connector.jar import ensure_jar
from spark_connector.java import find_java, spark_java_home
from spark_connector.query_checkpoint import FORMAT_KEY, PROVIDER_KEY, QueryCheckpoint
from spark_connector.spark_home import spark_jars
from spark_connector.takeover.files import CHANGELOGS_KEY
from spark_connector.takeover.former_stores import prefix_columns

HDFS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_SNAPSHOT = re.compile(r"(\d+)\.snapshot")
_AT_A_TIME = 4  # the state of so many stores is in the memory of the JVM at once
_WRITE = {
    PROVIDER_KEY: SPARK_PROVIDER,
    FORMAT_KEY: "1",  # without ids: they come with the names, as for every checkpoint of format 1
    CHANGELOGS_KEY: "false",  # each store becomes one snapshot
    f"{STREAMING}.checkpoint.fileChecksum.enabled": "false",
    f"{STREAMING}.checkpointFileManagerClass": FILE_MANAGER,
}
_ERROR_CHARACTERS = 3000


def former_bytes(folder: Path, version: int) -> int:
    """Returns the size of the files needed to open `version`. Raises LostError when some are missing."""
    found = (_SNAPSHOT.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    base = max((number for match in found if match and (number := int(match[1])) <= version), default=0)
    files = [folder / f"{base}.snapshot"] if base else []
    files += [folder / f"{number}.delta" for number in range(base + 1, version + 1)]
    if missing := [path.name for path in files if not path.is_file()]:
        raise LostError(
            f"{folder}: version {version} does not open from what is there; missing: {', '.join(missing[:5])}"
        )
    return sum(path.stat().st_size for path in files)


def check_tools() -> None:
    """Raises UnknownError without a supported Spark or without Java."""
    spark_jars()
    find_java()


def check_space(folder: Path, size_bytes: int) -> None:
    """Raises NoSpaceError when `folder` has no room for state of this size, compressed by either provider."""
    free = shutil.disk_usage(folder).free
    if free < 2 * size_bytes:
        raise NoSpaceError(
            f"{folder}: {free} bytes are free, and the conversion may need {2 * size_bytes}. Set TMPDIR to a folder "
            "with more room"
        )


def convert(
    checkpoint: QueryCheckpoint,
    stores: Sequence[StoreId],
    version: int,
    target: Path,
    done: Callable[[StoreId], None],
) -> None:
    """Writes `version` of the stores, as state of RocksDB format 1, below `target`/state.

    Calls `done` after each store. Raises PreconditionError with Spark's reasons when it fails, and LostError without
    the metadata of an operator.
    """
    _, jars = spark_jars()
    columns = {operator: prefix_columns(checkpoint, operator) for operator in {store.operator for store in stores}}
    lines = [f"{kind}\t{key}\t{value}" for kind, key, value in _settings(checkpoint)]
    lines += [f"store\t{s.operator}\t{s.partition}\t{s.store}\t{_columns(columns[s.operator], s)}" for s in stores]
    command = [str(jars.parent / "bin" / "spark-submit"), "--master", "local", "--class"]
    command += [f"{CLASSES}.takeover.ConvertState", str(ensure_jar()), _uri(checkpoint.folder), _uri(target)]
    command += [str(version), str(_AT_A_TIME)]
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home(find_java())), "SPARK_HOME": str(jars.parent)}
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n".join(lines))
            process.stdin.close()
            for line in process.stdout:
                match line.rstrip("\n").split("\t"):
                    case ["done", operator, partition, name, _]:
                        done(StoreId(checkpoint.job, int(operator), int(partition), name))
        if process.returncode != 0:
            errors.seek(0)
            raise PreconditionError(
                f"{checkpoint.folder}: Spark's conversion of the state failed with exit code {process.returncode}. The "
                "checkpoint is unchanged. If memory was short, set SPARK_DRIVER_MEMORY=8g, for example. "
                f"Spark says:\n{_causes(errors.read())}"
            )


def _settings(checkpoint: QueryCheckpoint) -> Iterator[tuple[str, str, str]]:
    recorded = {key: str(value) for key, value in checkpoint.settings().items()}
    yield from (("read", key, value) for key, value in recorded.items())
    yield from (("write", key, value) for key, value in {**recorded, **_WRITE}.items())


def _columns(of_operator: dict[str, int], store: StoreId) -> int:
    if store.store not in of_operator:
        raise PreconditionError(f"store {store}: the metadata of its operator describes {', '.join(of_operator)} only")
    return of_operator[store.store]


def _uri(folder: Path) -> str:
    return (folder / "state").absolute().as_uri()


def _causes(errors: str) -> str:
    """Returns the lines of the errors without their stacks, the last ones."""
    lines = [line for line in errors.splitlines() if line and not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(lines)[-_ERROR_CHARACTERS:]
