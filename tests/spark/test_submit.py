"""Applications without a word of Rhino in them, started with what `rhino conf` prints.

The jar is a file, or comes from a web server or a Maven repository on this machine.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino.testing import LocalCluster
from rhino.testing.spark_daemons import SPARK_HOME, spark_env
from spark_connector.jar import compile_scala, ensure_jar
from tests.spark.conftest import wait_for
from tests.spark.web import Web

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
HERE = Path(__file__).parent
FILES = 3
TIMEOUT_S = 240
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
LEAN = (
    "--driver-memory 460m --executor-memory 460m --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=3"
    f" --conf spark.log.level=WARN --conf 'spark.executor.extraJavaOptions={SHORT_LIVED}'"
)

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>com.example</groupId><artifactId>rhino-spark</artifactId><version>1.0</version></project>"""
# Without it, Spark would ask Maven Central first.
IVY = """<ivysettings><settings defaultResolver="here"/>
<resolvers><ibiblio name="here" root="{root}" m2compatible="true"/></resolvers></ivysettings>"""

PACKAGE, PACKAGE_FOLDER = "ivy://com.example:rhino-spark:1.0", "com/example/rhino-spark/1.0"


class Work:
    """Folders of one application, the commands to start it, and what it must print."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.result = folder / "result.json"
        self.environment = spark_env(cluster.network.center) | {"RHINO_MANAGER": cluster.manager}
        self.environment["SPARK_SUBMIT_OPTS"] = SHORT_LIVED
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


def test_a_file_of_settings_and_a_spark_outside_of_the_python_environment(work: Work) -> None:
    """The folder looks like an unpacked Spark archive: bin, jars, and python with PySpark in it.

    The jar is on every node already. Not in CI: tests/first_hour runs the same on one node.
    """
    home = work.folder / "spark"
    (home / "python").mkdir(parents=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(SPARK_HOME / name)
    (home / "python" / "pyspark").symlink_to(SPARK_HOME)
    settings = work.folder / "spark-defaults.conf"
    work.run(f"{work.conf} --jar local://{ensure_jar()} > {settings}", SPARK_HOME=str(home))
    assert f"spark.rhino.manager{' ' * 4}" in settings.read_text()
    submit = f"$SPARK_HOME/bin/spark-submit --properties-file {settings} {work.options}"
    work.run(f"{submit} {HERE}/submitted_app.py {work.arguments()}", SPARK_HOME=str(home))
    work.check()


@pytest.fixture
def web(work: Work) -> Iterator[Web]:
    with Web(work.cluster.network.center, work.folder / "web") as served:
        yield served


def test_a_jar_at_a_url(work: Work, web: Web) -> None:
    """Not in CI: cluster mode has its jar from there, too."""
    url = web.add("rhino.jar", ensure_jar().read_bytes())
    arguments = work.run(f"{work.conf} --jar {url} --format arguments")
    assert arguments.startswith(f"--jars {url} --conf ")
    work.run(f"spark-submit {work.options} {arguments.strip()} {HERE}/submitted_app.py {work.arguments()}")
    work.check()
    assert web.asked.count("/rhino.jar") >= 1 + len(work.cluster.workers), "the driver and each executor fetched it"


def test_a_package_of_a_maven_repository(work: Work, web: Web) -> None:
    """Not in CI: Spark resolves it, and then it is a jar as any other."""
    web.add(f"{PACKAGE_FOLDER}/rhino-spark-1.0.jar", ensure_jar().read_bytes())
    root = web.add(f"{PACKAGE_FOLDER}/rhino-spark-1.0.pom", POM.encode()).partition("/com/")[0]
    (work.folder / "ivy.xml").write_text(IVY.format(root=root))  # Spark asks there only
    ivy = f"--conf spark.jars.ivySettings={work.folder}/ivy.xml --conf spark.jars.ivy={work.folder}/ivy"
    conf = work.run(f"{work.conf} --jar {PACKAGE} --format arguments")
    assert conf.startswith("--packages com.example:rhino-spark:1.0 --conf ")
    assert "--jars" not in conf
    work.run(f"spark-submit {work.options} {ivy} {conf.strip()} {HERE}/submitted_app.py {work.arguments()}")
    work.check()
    assert web.asked.count(f"/{PACKAGE_FOLDER}/rhino-spark-1.0.jar") == 1, "the driver serves it to the executors"


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
def test_cluster_mode(work: Work, web: Web) -> None:
    """The driver runs on a worker. Spark standalone has this mode for JVM applications only."""
    classes = work.folder / "classes"
    compile_scala(SPARK_HOME / "jars", [HERE / "SubmittedApp.scala"], classes)
    app = work.folder / "app.jar"
    with zipfile.ZipFile(app, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes).as_posix())
    options = f"--master {work.cluster.master_url} --deploy-mode cluster --class submitted.SubmittedApp {LEAN}"
    # Spark standalone sends no files to the driver's node, and no package to executors: the jar comes from a server.
    url = web.add("rhino.jar", ensure_jar().read_bytes())
    work.run(f"spark-submit {options} $({work.conf} --jar {url} --format arguments) {app} {work.arguments()}")
    wait_for(lambda: work.result.is_file() and work.result.read_text(), "the result of the driver", timeout_s=150)
    work.check()
