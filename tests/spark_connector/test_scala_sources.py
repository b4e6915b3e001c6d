"""The form of the Scala sources. No usable formatter is to be had from PyPI or npm, so this checks the least."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_connector.jar import SOURCES

TESTS = Path(__file__).parent / "jvm" / "scala"
LINE_MAX = 120  # as for Python; imports may be longer
LINES_MAX = 300
FILES = [*sorted(SOURCES.rglob("*.scala")), *sorted(TESTS.rglob("*.scala"))]
SEAM = "org.apache.spark.sql.execution.streaming.state"


def package_of(path: Path) -> str:
    """Returns the package that the folder of a source stands for. That of Spark has two clauses, to see its members."""
    folder, *below = path.relative_to(SOURCES).parent.parts
    return {"seam": f"{SEAM}\npackage seam", "rhino": ".".join(["rhino.spark", *below])}[folder]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_source_is_in_form(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > LINE_MAX and not line.startswith("import ")] == []
    assert [line for line in lines if "\t" in line or line != line.rstrip()] == []


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.scala")), ids=lambda path: path.stem)
def test_the_folder_of_a_source_is_its_package(path: Path) -> None:
    assert path.read_text().startswith(f"package {package_of(path)}\n\n")


def test_the_seam_knows_nothing_of_rhino() -> None:
    imports = [path.name for path in (SOURCES / "seam").glob("*.scala") if "rhino.spark" in path.read_text()]
    assert imports == []


def test_imports_between_the_rooms_run_one_way() -> None:
    order = ["wire", "store", "settings", "sidecar", "load", "files", "restart", "modify", "driver", "takeover"]
    for place, room in enumerate(order):
        for path in (SOURCES / "rhino" / room).glob("*.scala"):
            imported = set(re.findall(r"^import rhino\.spark\.(\w+)", path.read_text(), re.MULTILINE))
            assert imported <= set(order[:place]), f"{path.name} of {room} imports {imported - set(order[:place])}"
