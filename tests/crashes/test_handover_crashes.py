"""Manager, driver, origin, target and sidecars die by kill -9 before and after every step of a handover.

After each case the output equals DuckDB's, the record says what the logged batches show, and every virtual node has a
desired location where its newest batch ran, and a group with all its copies.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crashes.case import VICTIMS, check, play
from tests.crashes.stage import POINTS, Stage

SECOND = [p for p in POINTS if p.split(".")[1] in ("marker", "push", "writers", "confirm", "owner", "settled")]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
EACH_TIME = {("origin", "handover.marker.after")}  # the step on which all turns
EVERY = [
    pytest.param(victim, point, marks=() if (victim, point) in EACH_TIME else pytest.mark.nightly)
    for victim in VICTIMS
    for point in POINTS
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("crashes")) as made:
        yield made


@pytest.mark.parametrize(("victim", "point"), EVERY)
def test_a_crash_at_a_step_of_a_handover(
    victim: str, point: str, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(stage, point, victim, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("point", SECOND)
@pytest.mark.parametrize("victim", ["manager", "target"])
def test_a_crash_in_the_second_of_two_steps(
    victim: str, point: str, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(stage, point, victim, capsys, steps=2)


def _play(stage: Stage, point: str, victim: str, capsys: pytest.CaptureFixture[str], steps: int = 1) -> None:
    outcome = play(stage, point, victim, steps)
    with capsys.disabled():
        print(f"\n  {outcome}", end=" ", flush=True)
    check(outcome)
