"""A Flink session cluster on the loopback, as plain `java` processes: a job manager and task managers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.stateful import CONSOLE, PARTITIONS, WORKERS
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from spark_connector.java import find_java

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
CHECKPOINT_INTERVAL_S = 1
HEAP_MB = MANAGED_MB = 512  # together what an executor of the other subject has
_LOGGING = f"{CONSOLE}rootLogger.level = info\n"
# What Flink's own default configuration opens for its serialisers.
_OPENED = (
    *("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent"),
    *("util.concurrent.atomic", "util.concurrent.locks"),
)


@dataclass(frozen=True, slots=True)
class FlinkCluster:
    jars: Path
    temporary: Path
    settings: Mapping[str, str]
    job_manager: Process
    task_managers: Sequence[Process]  # their names are their resource ids


def java_options(temporary: Path) -> list[str]:
    """For any JVM with Flink's classes: heap, temporary files, and the packages to open for Flink."""
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    opened += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/sun.net.util=ALL-UNNAMED"]
    return [f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={temporary}", *opened]


@contextmanager
def flink_cluster(folder: Path, jars: Path) -> Iterator[FlinkCluster]:
    """Serves with all slots registered, in `folder`; ends with the context, or with this process."""
    folder = folder.resolve()  # it goes into URIs
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    rpc_port, rest_port = _free_ports(2)
    settings = _settings(folder, rpc_port, rest_port)
    (folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    with ExitStack() as stack:
        reaper = stack.enter_context(Reaper())

        def start(name: str, main_class: str, *more: str) -> Process:
            options = [*java_options(temporary), f"-Dlog4j.configurationFile=file:{logging}", "-cp", str(jars / "*")]
            command = [str(find_java()), *options, main_class, "--configDir", str(folder), *more]
            started = Process(name, command, log_dir=folder, env=_environment(folder), reaper=reaper)
            stack.callback(started.kill)
            return started

        master = start("job-manager", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint")
        runner = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        names = [f"task-manager-{number}" for number in range(WORKERS)]
        workers = [start(name, runner, f"-Dtaskmanager.resource-id={name}") for name in names]
        for name in names:
            master.wait_for_match(rf"Registering TaskManager with ResourceID {name}\b", timeout_s=START_TIMEOUT_S)
        yield FlinkCluster(jars, temporary, settings, master, workers)


def _settings(folder: Path, rpc_port: int, rest_port: int) -> dict[str, str]:
    """Any two task managers have room for the whole job."""
    slots = -(-PARTITIONS // (WORKERS - 1))
    checkpoints = {
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.interval": f"{CHECKPOINT_INTERVAL_S} s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.local-backup.enabled": "true",
        "execution.state-recovery.from-local": "true",  # who stays on a task manager copies nothing
        "state.backend.type": "rocksdb",
    }
    memory = {
        "taskmanager.cpu.cores": "1.0",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.task.heap.size": f"{HEAP_MB - 128}m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.managed.size": f"{MANAGED_MB}m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
    }
    return {
        "jobmanager.rpc.address": HOST,
        "jobmanager.rpc.port": str(rpc_port),
        "jobmanager.bind-host": HOST,
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": str(rest_port),
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "taskmanager.numberOfTaskSlots": str(slots),
        "taskmanager.load-balance.mode": "SLOTS",
        "parallelism.default": str(PARTITIONS),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "100 ms",  # without any, the first attempt takes slots of the dead
        "heartbeat.interval": "100 ms",  # two that fail free those slots; with the default they stay for 10 s or more
        "io.tmp.dirs": str(folder / "tmp"),
        **checkpoints,
        **memory,
    }


def _environment(folder: Path) -> dict[str, str]:
    """Without variables that could point at somebody else's Flink."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLINK_")}
    (folder / "plugins").mkdir(exist_ok=True)
    return inherited | {"FLINK_PLUGINS_DIR": str(folder / "plugins")}


def _free_ports(count: int) -> list[int]:
    """Ports free now: the others must know the job manager's before it serves."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
