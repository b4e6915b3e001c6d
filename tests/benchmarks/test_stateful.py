"""Where the subjects of the Spark benchmarks run."""

from __future__ import annotations

from benchmarks.cells import place_of


def test_a_subject_says_where_its_files_go() -> None:
    spread = place_of("block-1gbit")
    assert (spread.rhino, spread.blocks, spread.remote_checkpoint) == (True, True, True)
    assert spread.settings == {
        "spark.rhino.placement": "block",
        "spark.rhino.replicationFactor": "2",
        "spark.rhino.minCopies": "2",
    }
    assert (place_of("stock").settings, place_of("rhino").settings) == ({}, {})
    assert not place_of("stock-cut").remote_checkpoint
