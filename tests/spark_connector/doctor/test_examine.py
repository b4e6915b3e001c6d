"""Checkpoints that stock Spark made, and damaged in many ways: all of it is named, and most of it is repaired."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_connector.doctor.cost import cost_of
from spark_connector.doctor.examine import Diagnosis, first_look, whole_look
from spark_connector.doctor.files import Files
from spark_connector.doctor.finding import Severity
from spark_connector.doctor.move import move_of
from spark_connector.doctor.repair import carry_out, plan_repair
from spark_connector.doctor.tree import Folder
from tests.spark_connector.doctor.damages import DAMAGES, START, Damage
from tests.spark_connector.doctor.stock import BASES, BATCHES

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[3]
MOVES = {  # options of `rhino adopt`
    "rocks1": ["--to-format", "2"],
    "rocks2": [],
    "plain1": ["--to-format", "2"],
    "hdfs": ["--to-format", "2"],
    "join": [],
    "transform": ["--integration", "checkpoint"],
}
CONTINUED = (  # of each way of repair, one
    "data file flipped",
    "changelog before missing",
    "newest commit empty",
    "base missing",
    "newest offsets cut",
    "operator garbage",
    "schema cut",
    "bare delta cut",
    "bare snapshot flipped",
    "the only snapshot cut",
    "fewer sources",
    "changelog lost",
    "sums of a changelog flipped",
)


class Stock:
    """Stock Spark in its process, and the checkpoints that it made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_connector.doctor.stock", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._line() == "made"

    def _line(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(("made", '"')):
                return line.strip()
        raise AssertionError("the process of Spark has ended")

    def error(self, base: str, folder: Path) -> str:
        """Goes on from folder/checkpoint, and returns what went wrong."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([base, str(folder)]) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._line()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def copy(self, base: str, folder: Path) -> Path:
        shutil.copytree(self.root / base, folder)
        return folder / "checkpoint"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    stock = Stock(tmp_path_factory.mktemp("stock"))
    yield stock
    stock.close()


def look(checkpoint: Path) -> Diagnosis:
    return whole_look(Files(Folder(checkpoint)))


@pytest.mark.parametrize("base", BASES)
def test_a_sound_checkpoint_has_no_findings(base: str, stock: Stock) -> None:
    found = look(stock.root / base / "checkpoint")
    assert not found.damaged, found.findings
    assert found.as_it_is
    assert found.opens == found.query.newest_commit == BATCHES - 1
    assert found.state_bytes > 0
    move, cost = move_of(found), cost_of(found)
    assert move is not None
    assert cost is not None
    assert move.command.split()[3:] == MOVES[base]
    assert (move.blockers, bool(move.notes)) == ((), base == "hdfs")
    assert cost.puts_a_batch >= 2 + len(found.query.places)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"{damage.base}: {damage.name}")
def test_damage_is_named_and_repaired(damage: Damage, stock: Stock, tmp_path: Path) -> None:
    checkpoint = stock.copy(damage.base, tmp_path / "q")
    newest = look(checkpoint).query.newest_commit
    damage.plant(checkpoint, newest)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}

    found = look(checkpoint)
    assert any(map(damage.named_by, found.findings)), found.findings
    assert found.damaged == (damage.severity is not Severity.NOTE)
    if damage.back is None:
        assert found.opens is None
        return
    opens = -1 if damage.back == START else found.query.newest_commit - damage.back
    assert found.opens == opens, found.findings
    quick = first_look(Files(Folder(checkpoint)))
    assert quick.opens is not None
    assert quick.opens >= opens

    target = tmp_path / "repaired"
    copy = carry_out(plan_repair(found, target), found.query.files, target)
    worst = [f for f in copy.findings if f.severity is Severity.BLOCKS]
    assert not worst
    assert copy.opens == opens
    assert {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.name in CONTINUED], ids=lambda d: f"{d.base}: {d.name}")
def test_stock_spark_goes_on_exactly_from_the_repaired_copy(damage: Damage, stock: Stock, tmp_path: Path) -> None:
    checkpoint = stock.copy(damage.base, tmp_path / "q")
    damage.plant(checkpoint, BATCHES - 1)
    found = look(checkpoint)
    target = tmp_path / "again" / "checkpoint"
    carry_out(plan_repair(found, target), found.query.files, target)
    shutil.copytree(tmp_path / "q" / "output", tmp_path / "again" / "output")
    assert stock.error(damage.base, tmp_path / "again") == ""


@pytest.mark.parametrize("name", ["newest commit empty", "schema cut", "changelog before missing", "bare delta cut"])
def test_stock_spark_does_not_open_what_is_said_to_block(name: str, stock: Stock, tmp_path: Path) -> None:
    damage = next(damage for damage in DAMAGES if damage.name == name)
    damage.plant(stock.copy(damage.base, tmp_path / "q"), BATCHES - 1)
    assert stock.error(damage.base, tmp_path / "q") != ""
