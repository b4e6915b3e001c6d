"""The form of the Scala sources. No usable formatter is to be had from PyPI or npm, so this checks the least."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_connector.jar import ROOTS, SERVICES, sources
from tests.spark_connector.support.scala_tests import scala_tests

LINE_MAX = 120  # as for Python; imports may be longer
LINES_MAX = 300
SEAM = "org.apache.spark.sql.execution.streaming.state"
ENGINE, PRODUCT = ROOTS
# A room imports only rooms before it.
ENGINE_ROOMS = ["wire", "store", "settings", "sidecar", "load", "files", "restart", "driver", "takeover"]
MODIFY_ROOMS = ["jars", "records", "points", "checks", "comparison"]


def package_of(path: Path) -> str:
    """Returns the package that the folder of a source stands for. That of Spark has two clauses, to see its members."""
    if path.is_relative_to(PRODUCT):
        return ".".join(["rhino.spark", *path.relative_to(PRODUCT).parent.parts])
    folder, *below = path.relative_to(ENGINE).parent.parts
    return {"seam": f"{SEAM}\npackage seam", "rhino": ".".join(["rhino.spark", *below])}[folder]


@pytest.mark.parametrize("path", [*sources(), *scala_tests()], ids=lambda path: path.stem)
def test_a_source_is_in_form(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > LINE_MAX and not line.startswith("import ")] == []
    assert [line for line in lines if "\t" in line or line != line.rstrip()] == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_the_folder_of_a_source_is_its_package(path: Path) -> None:
    assert path.read_text().startswith(f"package {package_of(path)}\n\n")


def test_the_seam_knows_nothing_of_rhino() -> None:
    imports = [path.name for path in (ENGINE / "seam").glob("*.scala") if "rhino.spark" in path.read_text()]
    assert imports == []


@pytest.mark.parametrize(
    ("folder", "prefix", "order"),
    [(ENGINE / "rhino", "rhino.spark", ENGINE_ROOMS), (PRODUCT / "modify", "rhino.spark.modify", MODIFY_ROOMS)],
    ids=["engine", "modify"],
)
def test_imports_between_the_rooms_run_one_way(folder: Path, prefix: str, order: list[str]) -> None:
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {*order}
    for place, room in enumerate(order):
        for path in (folder / room).glob("*.scala"):
            imported = set(re.findall(rf"^import {re.escape(prefix)}\.(\w+)", path.read_text(), re.MULTILINE))
            assert imported <= {*order[:place]}, f"{path.name} of {room} imports {imported - {*order[:place]}}"


def test_the_engine_names_nothing_of_query_evolution() -> None:
    rooms = "|".join(path.name for path in PRODUCT.iterdir() if path.name != "META-INF")
    name = re.compile(rf"\brhino\.spark\.({rooms})\b")
    named = [path.name for path in ENGINE.rglob("*.scala") if name.search(path.read_text())]
    assert named == []


def test_the_driver_extensions_of_the_jar_are_classes_of_the_product() -> None:
    ((service,), code) = ((PRODUCT / SERVICES).iterdir(), "".join(path.read_text() for path in sources()))
    assert f"trait {service.name.rpartition('.')[2]} " in code
    for name in service.read_text().split():
        package, _, short = name.rpartition(".")
        assert f"class {short} extends DriverExtension" in code
        assert (PRODUCT / package.removeprefix("rhino.spark.")).is_dir()
