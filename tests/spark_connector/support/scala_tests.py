"""The Scala tests: of the engine, and of query_evolution above it."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[2]
FOLDERS = (TESTS / "spark_connector/jvm/scala", TESTS / "query_evolution/scala")


def scala_tests() -> list[Path]:
    """Returns the sources of suites, and those that they share."""
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.scala"))]
