"""The named revisions are those that this tree has to work with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.protocol import PROTOCOL
from tests.upgrade.revisions import NoHistoryError, extract, protocol_of
from tests.worker_runtime.cluster import ROOT


def test_this_tree_speaks_its_protocol() -> None:
    assert protocol_of(ROOT) == PROTOCOL


def test_older_revisions_are_at_most_one_protocol_version_behind(older: Path) -> None:
    assert protocol_of(older) in (PROTOCOL - 1, PROTOCOL), "name another revision in tests/upgrade/revisions.py"


def test_a_revision_that_is_not_there_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(NoHistoryError, match="git fetch --unshallow"):
        extract("0" * 40, tmp_path)
