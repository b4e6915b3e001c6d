"""A user's machine: Python, Java, and a virtual environment with the wheel. No repository, no other packages."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from spark_connector.java import find_java, spark_java_home

COMMAND_TIMEOUT_S = 240
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # these JVMs end before better code pays


@dataclass(frozen=True)
class Machine:
    """`home`: the user's home, and the folder in which commands run. `environment`: all variables there are."""

    home: Path
    environment: dict[str, str]

    @property
    def python(self) -> Path:
        return self.home / "venv/bin/python"

    def run(self, command: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Runs a shell command and returns its output, both streams. Fails if the command fails."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}"
        return done.stdout


def prepare(home: Path, wheel: Path, *requirements: str) -> Machine:
    """Installs the wheel in a new virtual environment, as `pip install` does with these requirements.

    The other packages come from the environment of this process, without a network: exactly those that the
    requirements name, directly or not.
    """
    venv.create(home / "venv", with_pip=False, symlinks=True)
    python = home / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home / "venv"), "platbase": str(home / "venv")}))
    for distribution in _needed(site, requirements):
        _link(distribution, site, home / "venv/bin")
    java = spark_java_home(find_java())
    environment = {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(home / "venv/bin"), str(java / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
        "JAVA_HOME": str(java),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }
    return Machine(home, environment)


def _needed(site: Path, requirements: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """The distributions that pip would install beside the wheel in `site`."""
    (ours,) = importlib.metadata.distributions(path=[str(site)])
    waiting, seen = [Requirement(text) for text in requirements], set[tuple[str, frozenset[str]]]()
    names = set[str]()
    while waiting:
        wanted = waiting.pop()
        name = wanted.name.lower().replace("_", "-")
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        own = name == ours.metadata["Name"]
        distribution = ours if own else importlib.metadata.distribution(name)
        assert wanted.specifier.contains(distribution.version, prereleases=True), wanted
        for text in distribution.requires or ():
            further = Requirement(text)
            extras = wanted.extras or {""}
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(further)
        if not own and name not in names:
            names.add(name)
            yield distribution


def _link(distribution: importlib.metadata.Distribution, site: Path, scripts: Path) -> None:
    """Links the packages and scripts of a distribution. Scripts of entry points are left out: they name a Python."""
    entry_points = {point.name for point in distribution.entry_points}
    for file in distribution.files or ():
        found = Path(str(distribution.locate_file(file))).resolve()
        if ".." not in file.parts:
            link, target = site / file.parts[0], Path(str(distribution.locate_file(file.parts[0]))).resolve()
        elif found.parent.name == "bin" and found.name not in entry_points:
            link, target = scripts / found.name, found
        else:
            continue
        if not link.exists() and target.exists() and link.name != "__pycache__":
            link.symlink_to(target)


def unpack_spark(folder: Path) -> Path:
    """Makes `folder` look like an unpacked archive of Spark, from the PySpark package. Returns `folder`."""
    package = Path(str(importlib.metadata.distribution("pyspark").locate_file("pyspark")))
    (folder / "conf").mkdir(parents=True)
    (folder / "python/lib").mkdir(parents=True)
    for name in ("bin", "sbin"):
        shutil.copytree(package / name, folder / name)
    (folder / "jars").symlink_to(package / "jars")
    for archive in (package / "python/lib").glob("*.zip"):
        (folder / "python/lib" / archive.name).symlink_to(archive)
    (folder / "python/pyspark").symlink_to(package)
    return folder
