"""The memory of the machines does not grow with workers and queries that come and go."""

from __future__ import annotations

import pytest

from tests.simulation import growth

HOURS, MONTH_HOURS = 0.45, 30.0  # simulated; an hour is about a day of a real cluster


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_cluster_that_runs_for_long_remembers_no_more_in_the_end() -> None:
    soak = growth.run(0, HOURS * 3600.0)
    assert soak.came["workers"] > 20
    assert soak.came["queries"] > 20
    assert len(soak.workload.stores[0].history) > 500, "batches went on"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_nor_does_one_that_runs_for_a_month() -> None:
    growth.run(1, MONTH_HOURS * 3600.0)


def test_a_container_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of forgotten jobs stay."""
    monkeypatch.setattr("replication_manager.protocol.changes.chains.Chains.forget_settings", lambda self, job: None)
    with pytest.raises(AssertionError, match=r"Chains\._settings"):
        growth.run(0, HOURS * 3600.0)
