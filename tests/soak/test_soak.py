"""Soaks as tests; `python -m tests.soak --minutes 20` is the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.run import soak
from tests.soak.slopes import growing

MINUTE_S = 60.0


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_real_daemons_tell_their_figures_while_queries_and_workers_come_and_go(tmp_path: Path) -> None:
    soaked = await soak(tmp_path, 12.0)
    assert soaked.came["batches"] > 0
    last = soaked.samples[-1]
    assert {"journal MB", "index MB", "store files", "a inbox files", "a anonymous MB", "a tasks"} <= last.keys()
    assert last["manager size of GroupTable.by_id"] > 0
    assert last["a objects worker_runtime.push.sender.Link"] > 0


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_nothing_grows(tmp_path: Path) -> None:
    soaked = await soak(tmp_path, 6 * MINUTE_S)
    assert not soaked.growing, f"{[str(growth) for growth in soaked.growing]} after {soaked.came}"


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("leak", "figure"), [("descriptors", "a descriptors"), ("settings", "manager size of Chains._settings")]
)
async def test_a_leak_is_found(tmp_path: Path, leak: str, figure: str) -> None:
    soaked = await soak(tmp_path, 3 * MINUTE_S, leak=leak)
    assert figure in {growth.figure for growth in growing(soaked.samples)}
