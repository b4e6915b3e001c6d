"""What the wheel brings with it: little for a node that only stores state, and no word of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.first_hour.machine import Machine, prepare

SITE = "import sys, pathlib; print(*sorted(p.name for p in pathlib.Path(sys.prefix).glob('lib/*/site-packages/*')))"
BIG = {"pyspark", "scipy", "numpy", "pandas", "pyarrow", "grpc_tools", "matplotlib", "duckdb"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Machine:
    """A node for sidecars: `pip install rhino-state`."""
    return prepare(tmp_path_factory.mktemp("node"), wheel, "rhino-state")


def test_a_node_for_sidecars_needs_no_spark_and_no_numerics(node: Machine) -> None:
    assert not BIG & set(node.run(f'python -c "{SITE}"').split())


def test_its_commands_start_there(node: Machine) -> None:
    assert node.run("rhino --version").startswith("rhino 0.")
    for command in ("manager", "sidecar", "status", "handover move", "drain", "adopt", "local show"):
        assert f"rhino {command}" in node.run(f"rhino {command} --help")


def test_it_manages_and_stores(node: Machine) -> None:
    """A manager and a sidecar, started with the commands of the README, and looked at."""
    printed = node.run(
        """
        rhino manager --data-dir manager --listen 127.0.0.1:0 --bootstrap --exit-with-parent \\
            > manager.out 2> manager.log &
        until grep -q address manager.out; do sleep 0.1; done
        export RHINO_MANAGER=$(python -c 'import json; print(json.load(open("manager.out"))["address"])')
        rhino sidecar --data-dir data --host node-1 --listen 127.0.0.1:0 --socket $PWD/s --exit-with-parent \\
            > sidecar.out 2> sidecar.log &
        until grep -q socket sidecar.out; do sleep 0.1; done
        rhino status --check
        kill %2 %1
        wait
        """,
        timeout_s=90,
    )
    assert "OK: 1 of 1 workers live, 0 queries, 0 replica groups" in printed
    assert "node-1  live" in printed
