"""Driver, manager and a worker die by kill -9 before and after every step of a modification.

After each case the output equals DuckDB's, which switches at the batches that the ledger names, and the modification
has the end that it has without a crash.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crashes.modification import VICTIMS, Case, Jarred, Modified, cases, jar_cases, play

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
EVERY = [pytest.param(case, victim, id=f"{case}-{victim}") for case in cases() for victim in VICTIMS]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modified]:
    with Modified(tmp_path_factory.mktemp("modified")) as made:
        yield made


@pytest.mark.parametrize(("case", "victim"), EVERY)
def test_a_crash_at_a_step_of_a_modification(
    case: Case, victim: str, stage: Modified, capsys: pytest.CaptureFixture[str]
) -> None:
    said = play(stage, case, victim)
    with capsys.disabled():
        print(f"\n  {said}", end=" ", flush=True)


@pytest.fixture(scope="module")
def jarred(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jarred]:
    with Jarred(tmp_path_factory.mktemp("jarred")) as made:
        yield made


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("case", jar_cases(), ids=str)
def test_a_crash_at_a_step_of_a_new_class(
    case: Case, victim: str, jarred: Jarred, capsys: pytest.CaptureFixture[str]
) -> None:
    said = play(jarred, case, victim)
    with capsys.disabled():
        print(f"\n  {said}", end=" ", flush=True)
