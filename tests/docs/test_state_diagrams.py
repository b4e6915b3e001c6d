"""The state diagrams of the design pages are those of the tables in the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from query_evolution.modify.ledger import MODIFICATION
from query_evolution.replace.core import SUPERVISOR
from rhino_core.transitions import TransitionTable
from worker_runtime.protocol.chain.membership import MEMBER
from worker_runtime.protocol.chain.outgoing import DELIVERY

DESIGN = Path(__file__).parents[2] / "docs" / "design"
TABLES = [
    ("catch-up.md", MEMBER),
    ("replication.md", DELIVERY),
    ("modification.md", MODIFICATION),
    ("restart.md", SUPERVISOR),
]


@pytest.mark.parametrize(("page", "table"), TABLES, ids=[page for page, _ in TABLES])
def test_the_page_shows_the_table(page: str, table: TransitionTable[Any, Any]) -> None:
    assert f"```mermaid\n{table.diagram()}\n```" in (DESIGN / page).read_text(), (
        f"docs/design/{page} needs:\n{table.diagram()}"
    )
