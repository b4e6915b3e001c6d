"""The wheel has Rhino's packages, its jars and nothing else, and works where there is no repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from spark_connector.jar import ensure_jar
from tests.deploy.wheel import PACKAGES, ROOT, build_wheel

NAMES = "import rhino; [getattr(rhino, name) for name in rhino.__all__]; print(rhino.__file__)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel puts into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(build_wheel(folder)).extractall(folder / "site")
    return folder / "site"


def run(site: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the wheel, in its folder, and without the repository."""
    environment = os.environ | {"PYTHONPATH": str(site)} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=site.parent, env=environment
    )


def test_packages(site: Path) -> None:
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == PACKAGES


def test_every_package_has_its_types(site: Path) -> None:
    assert {path.parent.name for path in site.glob("*/py.typed")} == PACKAGES


def test_sources_of_the_jvm_part_and_messages_are_there(site: Path) -> None:
    for package in ("spark_connector", "query_evolution"):
        assert len(list(site.rglob(f"{package}/**/*.scala"))) == len(list((ROOT / package).rglob("*.scala")))
    assert list(site.glob("query_evolution/scala/META-INF/services/*"))
    assert len(list((site / "rhino_pb").glob("*.proto"))) == len(list((ROOT / "proto/rhino_pb").glob("*.proto")))


def test_files_of_the_page_are_there(site: Path) -> None:
    folder = "rhino/page/files"
    assert {path.name for path in (site / folder).iterdir()} == {path.name for path in (ROOT / folder).iterdir()}


def test_the_command_is_an_entry_point(site: Path) -> None:
    (info,) = site.glob("*.dist-info")
    assert "rhino = rhino.cli.main:main" in (info / "entry_points.txt").read_text()
    extras = Parser().parsestr((info / "METADATA").read_text()).get_all("Provides-Extra") or []
    assert {"spark", "java", "verify", "testing", "ui"} <= set(extras)


def test_the_jar_in_the_wheel_is_used_and_none_is_built(site: Path) -> None:
    found = run(site, "-m", "rhino.cli.main", "jar", JAVA_HOME="/nonexistent", PATH="/nonexistent")
    assert found.stdout.strip() == str(site / "spark_connector/jars" / ensure_jar().name), found.stderr
    assert not found.stderr


def test_names_for_users(site: Path) -> None:
    names = run(site, "-c", NAMES)
    assert names.stdout.strip() == str(site / "rhino/__init__.py"), names.stderr


def test_a_manager_starts_and_answers(site: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(site)}
    arguments = ["manager", "--data-dir", str(tmp_path / "m"), "--listen", "127.0.0.1:0", "--bootstrap"]
    command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--exit-with-parent"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env=environment
    ) as manager:
        try:
            assert manager.stdout is not None
            address = json.loads(manager.stdout.readline())["address"]
            status = run(site, "-m", "rhino.cli.main", "status", "--json", "--manager", address)
            assert json.loads(status.stdout)["workers"] == [], status.stderr
        finally:
            manager.terminate()


def test_local_clusters_say_what_they_need(site: Path) -> None:
    done = run(site, "-c", "import sys; sys.modules['psutil'] = None\nimport rhino.testing")
    assert done.returncode != 0
    assert "pip install 'rhino-state[testing]'" in done.stderr
