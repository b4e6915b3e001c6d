"""Applications without a word of Rhino in them, started with what `rhino conf` prints."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from rhino.testing.spark_daemons import SPARK_HOME, spark_env
from spark_connector.jar import compile_scala
from tests.spark.conftest import wait_for

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
FILES = 4
TIMEOUT_S = 150
LEAN = (
    "--driver-memory 460m --executor-memory 460m --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=3"
    " --conf spark.log.level=WARN"
)


class Work:
    """Folders of one application, the commands to start it, and what it must print."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.result = folder / "result.json"
        self.environment = spark_env(cluster.network.center) | {"RHINO_MANAGER": cluster.manager}
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.options = f"--master {cluster.master_url} {LEAN} --conf spark.driver.host={cluster.network.center}"
        self.conf = f"{sys.executable} -m rhino.cli.main conf --socket '{cluster.socket}'"
        (folder / "rows").mkdir()
        lines = [str(n % 7) for n in range(FILES * 25)]
        for number in range(FILES):
            (folder / "rows" / f"{number}.txt").write_text("\n".join(lines[number::FILES]))
        self.expected = dict(Counter(lines))

    def arguments(self) -> str:
        return shlex.join([str(self.folder / "rows"), str(self.folder / "checkpoint"), str(self.result)])

    def run(self, command: str, *, text: str | None = None, **environment: str) -> str:
        """Runs a shell command as a user would, and returns its output."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment | environment,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}"
        return done.stdout

    def check(self) -> None:
        found = json.loads(self.result.read_text())
        assert found["counts"] == self.expected
        assert len(found["rhino"]) >= FILES
        assert all(found["rhino"]), "a batch whose state Rhino did not have"


@pytest.fixture
def work(cluster: LocalCluster, tmp_path: Path) -> Work:
    return Work(cluster, tmp_path)


def test_arguments_of_spark_submit(work: Work) -> None:
    work.run(
        f"spark-submit {work.options} $({work.conf} --format arguments) {HERE}/submitted_app.py {work.arguments()}"
    )
    work.check()


def test_a_file_of_settings_and_a_spark_outside_of_the_python_environment(work: Work) -> None:
    """The folder looks like an unpacked Spark archive: bin, jars, and python with PySpark in it."""
    home = work.folder / "spark"
    (home / "python").mkdir(parents=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(SPARK_HOME / name)
    (home / "python" / "pyspark").symlink_to(SPARK_HOME)
    settings = work.folder / "spark-defaults.conf"
    work.run(f"{work.conf} > {settings}", SPARK_HOME=str(home))
    assert f"spark.rhino.manager{' ' * 4}" in settings.read_text()
    submit = f"$SPARK_HOME/bin/spark-submit --properties-file {settings} {work.options}"
    work.run(f"{submit} {HERE}/submitted_app.py {work.arguments()}", SPARK_HOME=str(home))
    work.check()


@pytest.mark.exhaustive
def test_the_shell(work: Work) -> None:
    """Not in CI: its launcher and its arguments are those of `spark-submit`."""
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(HERE)!r})",
        "import submitted_app",
        f"submitted_app.main({', '.join(map(repr, shlex.split(work.arguments())))})",
        "",
    ]
    work.run(f"pyspark {work.options} $({work.conf} --format arguments)", text="\n".join(lines))
    work.check()


@pytest.mark.timeout(400)
def test_cluster_mode(work: Work) -> None:
    """The driver runs on a worker. Spark standalone has this mode for JVM applications only."""
    classes = work.folder / "classes"
    compile_scala(SPARK_HOME / "jars", [HERE / "SubmittedApp.scala"], classes)
    app = work.folder / "app.jar"
    with zipfile.ZipFile(app, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes).as_posix())
    options = f"--master {work.cluster.master_url} --deploy-mode cluster --class submitted.SubmittedApp {LEAN}"
    work.run(f"spark-submit {options} $({work.conf} --format arguments) {app} {work.arguments()}")
    wait_for(lambda: work.result.is_file() and work.result.read_text(), "the result of the driver", timeout_s=150)
    work.check()
