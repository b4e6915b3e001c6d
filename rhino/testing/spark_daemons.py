"""Spark standalone as plain `java` processes. These start much faster than Spark's shell scripts."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from rhino.testing.class_archive import archive_option
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino.testing.shape import ClusterShape
from spark_connector.java import find_java, spark_java_home

START_TIMEOUT_S = 60.0
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True, slots=True)
class Master:
    url: str  # spark://host:port
    ui: str  # http://host:port

    def sees(self, host: str) -> bool | None:
        """Returns True if the master has a live worker on `host`; None if not, or if it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.ui}/json/", timeout=2) as reply:
                status = json.load(reply)
        except (urllib.error.URLError, TimeoutError):
            return None
        return any(w["host"] == host and w["state"] == "ALIVE" for w in status["workers"]) or None


def spark_env(host: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a Spark process on `host`, without inherited variables that could point to another Spark."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))}
    return inherited | {
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        **(extra or {}),
    }


def lean_jvm() -> tuple[str, ...]:
    """Options for short-lived JVMs on few cores: serial collector, only the first compiler, classes from an archive."""
    return ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive_option())


def java_command(heap: str, main_class: str, *options: str) -> list[str]:
    """Uses the class path of Spark's launcher for drivers and executors, because the class archive requires it."""
    jars = SPARK_HOME / "jars"
    class_path = os.pathsep.join(map(str, [SPARK_HOME / "conf", *jars.glob("slf4j-api-*.jar"), jars / "*"]))
    return [str(find_java()), f"-Xmx{heap}", *lean_jvm(), *options, "-cp", class_path, main_class]


def start_master(host: str, *, log_dir: Path, reaper: Reaper) -> Process:
    """Starts a master on free ports of `host` without waiting; see `wait_master`."""
    command = [
        *java_command("512m", "org.apache.spark.deploy.master.Master"),
        *("--host", host, "--port", "0", "--webui-port", "0"),
    ]
    return Process("spark-master", command, log_dir=log_dir, env=spark_env(host), reaper=reaper)


def wait_master(process: Process) -> Master:
    """Waits until the master serves. Its log contains the ports."""
    url = process.wait_for_match(r"Starting Spark master at (spark://\S+:\d+)\s", timeout_s=START_TIMEOUT_S)[1]
    ui = process.wait_for_match(r"MasterWebUI.*started at (http://\S+:\d+)\s", timeout_s=START_TIMEOUT_S)[1]
    return Master(url, ui)


def start_worker(
    name: str,
    host: str,
    master_url: str,
    shape: ClusterShape,
    *,
    folder: Path,
    log_dir: Path,
    reaper: Reaper,
    on_host: Callable[[Sequence[str]], list[str]] = list,
) -> Process:
    """Starts a worker with the host name `host` without waiting. Its executors get the same address.

    `on_host` wraps a command so that it runs at `host`. SIGPWR decommissions the worker.
    """
    command = [
        *java_command("512m", "org.apache.spark.deploy.worker.Worker", "-Dspark.decommission.enabled=true"),
        *("--host", host, "--port", "0", "--webui-port", "0"),
        *("--cores", str(shape.worker_cores * shape.applications)),
        *("--memory", f"{shape.executor_memory_mb * shape.applications}m"),
        *("--work-dir", str(folder / "work"), master_url),
    ]
    env = spark_env(host, {"SPARK_LOCAL_DIRS": str(folder / "local")})
    return Process(name, on_host(command), log_dir=log_dir, env=env, reaper=reaper)
