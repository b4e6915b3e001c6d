"""What passes on stock passes over Rhino; `python -m tests.spark_suites` does the same and prints a table."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark_suites.suites import (
    INTEGRATIONS,
    LEFT_OUT,
    MODULE_TIMEOUT_S,
    MODULES,
    Daemons,
    ModuleRun,
    daemons,
    run_module,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with daemons(tmp_path_factory.mktemp("daemons")) as started:
        yield started


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(3 * MODULE_TIMEOUT_S + 60)
@pytest.mark.parametrize("module", MODULES)
def test_what_passes_on_stock_passes_over_rhino(module: str, running: Daemons, tmp_path: Path) -> None:
    stock, *over = [run_module(module, integration, running, tmp_path) for integration in INTEGRATIONS]
    assert not stock.broken, stock.broken
    assert len(stock.passed()) >= MODULES[module].passing, stock.texts
    for run in over:
        assert not run.broken, run.broken
        assert not run.worse_than(stock), f"integration {run.integration}: {run.worse_than(stock)}"
    assert over[0].served >= MODULES[module].by_provider
    assert over[-1].served >= MODULES[module].served


def test_each_module_about_streaming_and_state_is_run_or_left_out_for_a_reason() -> None:
    root = "pyspark/sql/tests/"
    with zipfile.ZipFile(Path(pyspark.__file__).parent / "python/lib/pyspark.zip") as packed:
        found = [name.removeprefix(root).removesuffix(".py") for name in packed.namelist() if name.startswith(root)]
    tests = {name.replace("/", ".") for name in found if re.search(r"test_[^/]*$", name)}
    about = {name for name in tests if re.search(r"streaming|with_state|tws", name)}
    assert about == {*MODULES, *LEFT_OUT}


def test_a_module_that_cannot_be_imported_is_broken(tmp_path: Path) -> None:
    run = run_module("streaming.test_of_no_spark", "stock", Daemons("", ""), tmp_path)
    assert "ModuleNotFoundError" in run.broken
    assert not run.outcomes


def test_a_test_that_fails_or_is_missing_over_rhino_is_a_difference() -> None:
    stock = ModuleRun(
        "m", "stock", outcomes={"a": "passed", "b": "passed", "c": "failed", "d": "passed", "e": "passed"}
    )
    ours = ModuleRun(
        "m", "provider", outcomes={"a": "passed", "b": "failed", "c": "failed", "e": "refused"}, texts={"b": "wrong"}
    )
    assert ours.worse_than(stock) == {"b": "wrong", "d": "did not run"}
