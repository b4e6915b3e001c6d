"""Where the subjects of the Spark benchmarks run."""

from __future__ import annotations

from benchmarks.cells import place_of


def test_a_subject_says_where_it_runs() -> None:
    assert [(place.rhino, place.namespaces) for place in map(place_of, ("rhino", "stock", "stock-cut"))] == [
        (True, False),
        (False, False),
        (False, True),
    ]
