"""What `rhino adopt` refuses before it reads a checkpoint."""

from __future__ import annotations

import dataclasses

import pytest

from rhino.cli.takeover import refuse_forgotten
from rhino_core.errors import PreconditionError
from tests.rhino.client.views import JOB, job, node, overview, worker


def test_a_forgotten_query_is_taken_back_before_it_is_adopted() -> None:
    query = job(node(0, "a", "a"))
    refuse_forgotten(overview([worker("a")], jobs=[query]), JOB)
    forgotten = overview([worker("a")], jobs=[dataclasses.replace(query, delete_in_s=9.0)])
    refuse_forgotten(forgotten, "another")
    with pytest.raises(PreconditionError, match=f"{JOB} is forgotten.*`rhino forget --job {JOB} --undo`"):
        refuse_forgotten(forgotten, JOB)
