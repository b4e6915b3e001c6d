"""Applications on a user's machine: the commands of the README and of the guide, with other names and places only."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.first_hour.machine import Machine, prepare, unpack_spark
from tests.first_hour.network import prefix
from tests.first_hour.pages import documented
from tests.first_hour.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]
SETTINGS, ADOPT = "docs/user/settings.md", "docs/operate/adopt-and-release.md"
KEY = "spark.sql.streaming.stateStore"
STOCK = f"--conf {KEY}.providerClass=org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEYS = 7


@dataclass(frozen=True)
class Cluster:
    """A manager and two sidecars, of which `socket` is the one of this node. `key`: that of the cluster."""

    manager: str
    socket: Path
    key: Path

    def here(self, command: str) -> str:
        """A documented command with the places of this cluster."""
        moved = command.replace("manager-host:7461", self.manager)
        moved = re.sub(r"\brhino (conf|adopt|release)\b", rf"rhino \1 --socket {self.socket}", moved)
        return f"export RHINO_CLUSTER_KEY={self.key}\n{moved}"


@dataclass
class Application:
    """Rows that come file by file, and what the application must count."""

    folder: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "rows").mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("app.py"), self.folder)

    def add(self, files: int) -> None:
        for number in range(files):
            new = [str(n % KEYS) for n in range(20 + number)]
            (self.folder / "rows" / f"{len(self.lines):05}.txt").write_text("\n".join(new))
            self.lines += new

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def command(self) -> str:
        """In place of app.py in the documents."""
        return f"{self.folder}/app.py {self.folder}/rows {self.checkpoint} {self.folder}/result.json"

    def check(self, *, rhino: bool) -> None:
        found = json.loads((self.folder / "result.json").read_text())
        assert found["counts"] == dict(Counter(self.lines))
        assert set(found["rhino"]) == {rhino}
        (self.folder / "result.json").unlink()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Machine:
    return prepare(tmp_path_factory.mktemp("user"), wheel, "rhino-state[spark,verify]")


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Iterator[Cluster]:
    network, home = prefix(), machine.home
    manager = f"{network}1:7461"
    places = {"/var/lib/rhino-manager": f"{home}/manager", "manager-host:7461": manager}
    started = documented(
        "README.md", "rhino manager --data-dir /var/lib/rhino-manager --listen manager-host:7461 --bootstrap"
    )
    beside = documented(
        "README.md", "rhino sidecar --data-dir /data/rhino --host $(hostname) --manager manager-host:7461"
    )
    for name, place in places.items():
        started, beside = started.replace(name, place), beside.replace(name, place)
    with Terminal(machine, "nodes") as nodes:
        nodes.run(documented("README.md", "rhino cert key cluster.key"))
        nodes.run(documented("README.md", "export RHINO_CLUSTER_KEY=$PWD/cluster.key"))
        nodes.run(f"{started} > manager.log 2>&1 &")
        for n in (1, 2):
            sidecar = beside.replace("/data/rhino", f"{home}/data-{n}").replace("$(hostname)", f"{network}1{n}")
            nodes.run(f"{sidecar} --socket {home}/{n}.sock > sidecar-{n}.log 2>&1 &")
        ready = f"rhino status --check --manager {manager} | grep -q 'OK: 2 of 2 workers live'"
        nodes.run(f"until {ready}; do sleep 0.3; done", timeout_s=90)
        yield Cluster(manager, home / "1.sock", home / "cluster.key")


def test_spark_submit_with_arguments(machine: Machine, cluster: Cluster, tmp_path: Path) -> None:
    application = Application(tmp_path / "work")
    application.add(3)
    export = documented(SETTINGS, "export RHINO_MANAGER=manager-host:7461")
    submit = documented(SETTINGS, "spark-submit $(rhino conf --format arguments) app.py")
    machine.run("\n".join(map(cluster.here, (export, submit.replace("app.py", application.command)))))
    application.check(rhino=True)


def test_an_unpacked_spark_with_its_file_of_defaults(wheel: Path, cluster: Cluster, tmp_path: Path) -> None:
    """This machine has no PySpark package."""
    machine = prepare(tmp_path, wheel, "rhino-state")
    assert not list((tmp_path / "venv").glob("lib/*/site-packages/pyspark"))
    home = unpack_spark(tmp_path / "spark-4.3.0-bin-hadoop3")
    application = Application(tmp_path / "work")
    application.add(3)
    lines = (
        "export SPARK_HOME=/opt/spark-4.3.0-bin-hadoop3",
        "rhino conf --manager manager-host:7461 >> $SPARK_HOME/conf/spark-defaults.conf",
        "$SPARK_HOME/bin/spark-submit app.py",
    )
    commands = [cluster.here(documented(SETTINGS, line)) for line in lines]
    machine.run("\n".join(commands).replace("/opt/spark", f"{tmp_path}/spark").replace("app.py", application.command))
    assert "spark.rhino.manager" in (home / "conf/spark-defaults.conf").read_text()
    application.check(rhino=True)


def test_a_server_of_spark_connect(wheel: Path, cluster: Cluster, tmp_path: Path) -> None:
    """Its clients know nothing of Rhino. A second client continues the query of the first."""
    server = prepare(tmp_path / "server", wheel, "rhino-state")
    client = prepare(tmp_path / "client", wheel, "pyspark[connect]")
    unpack_spark(tmp_path / "spark")
    application = Application(tmp_path / "work")
    shutil.copy(Path(__file__).with_name("connect_client.py"), application.folder)
    export = cluster.here(documented(SETTINGS, "export RHINO_MANAGER=manager-host:7461"))
    start = documented(SETTINGS, "$SPARK_HOME/sbin/start-connect-server.sh --wait $(rhino conf --format arguments)")
    host = f"{prefix()}1"
    where = f"--conf spark.connect.grpc.binding.address={host} --conf spark.ui.enabled=false"
    arguments = f"sc://{host} {application.folder}/rows {application.checkpoint} {application.folder}/result.json"
    with Terminal(server, "server") as terminal:
        terminal.run(f"export SPARK_HOME={tmp_path}/spark\n{export}")
        terminal.run(f"{cluster.here(start)} {where} > connect.log 2>&1 &")
        started = "until grep -q 'Spark Connect server started at' connect.log; do sleep 0.3; done"
        terminal.run(started, timeout_s=240)  # clients wait, too, but for minutes between their attempts
        for _ in range(2):
            application.add(2)
            client.run(f"python {application.folder}/connect_client.py {arguments}")
            application.check(rhino=True)


def test_a_query_of_format_1_is_adopted_run_and_released(machine: Machine, cluster: Cluster, tmp_path: Path) -> None:
    application = Application(tmp_path / "work")
    manager = f"export RHINO_MANAGER={cluster.manager}\n"

    def rhino(line: str, options: str) -> str:
        command = documented(ADOPT, line).replace("/ckpt/q", str(application.checkpoint))
        return machine.run(f"{manager}{cluster.here(command)} {options}")

    def stock(options: str) -> None:
        """Spark leaves its RocksDB open, and a thread of it may abort (134) the JVM that ends. The work is checked."""
        machine.run(f"spark-submit {STOCK} {options} {application.command} || test $? = 134")
        application.check(rhino=False)

    application.add(3)
    stock("")

    assert "RocksDB, format 1" in rhino("rhino adopt /ckpt/q --to-format 2", "--idle-s 0 --dry-run")
    rhino("rhino adopt /ckpt/q --to-format 2", "--idle-s 0")
    application.add(3)
    submit = documented(SETTINGS, "spark-submit $(rhino conf --format arguments) app.py")
    machine.run(manager + cluster.here(submit.replace("app.py", application.command)))
    application.check(rhino=True)

    rhino("rhino release /ckpt/q", "--idle-s 0 --yes")
    application.add(2)
    stock(f"--conf {KEY}.checkpointFormatVersion=2")
