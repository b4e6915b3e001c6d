"""`rhino top`: what it shows, and its width."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from typing import Self

import pytest
from rich.console import Console

from rhino.cli import top
from rhino.cli.top import Activity, render
from rhino_core.errors import AccessDeniedError, RhinoError, UnavailableError
from rhino_model.loads import BatchLoad, SourceLag, VirtualNodeLoad
from tests.rhino.client.views import JOB, group, job, node, overview, worker

WORKERS = [worker("worker-of-a-node-with-a-long-name"), worker("b"), worker("c", "lost")]
SEEN = overview(
    WORKERS,
    [group(0, "b c!")],
    [
        job(node(0, "b", "b"), name="quiet"),
        job(node(0, "b", "b"), name="sums-of-all-orders-by-day", job_id="two", missed=2),
    ],
)


def batch(number: int, batch_s: float, job_id: str = "two") -> BatchLoad:
    nodes = (VirtualNodeLoad("0/0", "b", batch_s / 2, 10), VirtualNodeLoad("0/1", "worker-a", 0.0, 10))
    lags = (SourceLag("topic", "offsets", 1234.0),)
    return BatchLoad(job_id, "", "run", number, 1, 500, batch_s, 1.0, nodes, 2, 0, lags)


def lines(seen: Activity, rows_max: int = 10, rates: dict[str, float] | None = None) -> list[str]:
    out = io.StringIO()
    render(seen, SEEN, rates or {}, Console(file=out, width=100), rows_max)
    return out.getvalue().splitlines()


def test_the_busiest_query_and_worker_are_first_and_all_fits_100_columns() -> None:
    seen = Activity()
    for number, batch_s in enumerate((0.5, 1.0, 2.0)):
        seen.logged(batch(number, batch_s))
    shown = lines(seen, rates={"b": 2e6})
    assert shown[0].startswith("DEGRADED: 1 of 3 workers lost: c")
    sums, quiet = shown[3:5]
    assert sums.split() == [
        "sums-of-all-orders-by-d…",
        "2",
        "2.00",
        "s",
        "1.00",
        "s",
        "▃▅█",
        "500",
        "1234",
        "2",
        "2.00",
    ]
    assert quiet.split() == ["quiet", "7", "?", "?", "-", "?", "?", "0", "?"]
    assert [line.split()[0] for line in shown[7:10]] == ["c", "b", "worker-of-a-node-with-a…"], "lost ones first"
    assert "1.00 s" in shown[8]
    assert "2.0 MB" in shown[8]
    assert max(map(len, shown)) <= 100


def test_more_than_a_screen_is_counted() -> None:
    shown = lines(Activity(), rows_max=1)
    assert "and 1 more; see `rhino status`" in shown
    assert "and 2 more; see `rhino status`" in shown


def test_only_the_newest_batches_are_kept() -> None:
    seen = Activity()
    for number in range(100):
        seen.logged(batch(number, 1.0))
    assert [one.batch_id for one in seen.batches["two"]] == list(range(80, 100))


def test_a_rate_needs_two_looks_and_a_worker_that_began_anew_has_none_below_zero() -> None:
    seen, first = Activity(), WORKERS[1]
    assert seen.rates([first], 10.0) == {}
    assert seen.rates([dataclasses.replace(first, replicated_bytes=first.replicated_bytes + 500)], 15.0) == {"b": 100.0}
    assert seen.rates([dataclasses.replace(first, replicated_bytes=0)], 16.0) == {"b": 0.0}
    assert JOB not in seen.batches


def test_a_batch_that_comes_while_the_queries_are_sorted_is_in_nobodys_way() -> None:
    """Another thread appends it."""
    seen = Activity()

    for number in range(3):
        seen.logged(batch(number, 1.0))

    class Appending(float):
        def __gt__(self, other: object) -> bool:
            seen.logged(batch(9, 1.0))
            return False

    seen.batches["two"][1] = dataclasses.replace(batch(1, 1.0), batch_s=Appending(1.0))
    assert lines(seen)[3].split()[0] == "sums-of-all-orders-by-d…"


class _End(BaseException):
    """Ends the loop of the thread."""


@pytest.mark.parametrize("error", [UnavailableError("gone"), AccessDeniedError("no right to read")])
def test_the_loads_are_asked_for_again_after_any_error(error: RhinoError, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Client:
        def __init__(self, manager: str) -> None:
            asked.append(manager)
            if len(asked) == 3:
                raise _End

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def watch_load(self) -> Iterator[BatchLoad]:
            yield batch(len(asked), 1.0)
            raise error

    monkeypatch.setattr(top, "HandoverClient", Client)
    monkeypatch.setattr(top, "AGAIN_S", 0.0)
    seen = Activity()
    with pytest.raises(_End):
        top._follow("here", seen)
    assert [one.batch_id for one in seen.batches["two"]] == [1, 2]
