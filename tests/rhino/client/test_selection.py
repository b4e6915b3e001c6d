"""One query or one worker of an overview."""

from __future__ import annotations

import pytest

from rhino.client.selection import select
from rhino_core.errors import UnknownError
from tests.rhino.client.views import JOB, group, job, node, overview, worker

WHOLE = overview(
    (worker("a"), worker("b"), worker("c")),
    (group(0, "a b"), group(1, "b a"), group(0, "c a", job="other-id")),
    (job(node(0, "a", "a"), node(1, "b", "b")), job(node(0, "c", "c"), name="other", job_id="other-id")),
)


@pytest.mark.parametrize("given", [JOB, "counts"])
def test_a_query_is_found_by_id_and_by_name(given: str) -> None:
    found = select(WHOLE, job=given)
    assert [one.job for one in found.jobs] == [JOB]
    assert {one.group.job for one in found.groups} == {JOB}
    assert [one.worker_id for one in found.workers] == ["a", "b"]


def test_a_worker_comes_with_what_is_on_it() -> None:
    found = select(WHOLE, worker="c")
    assert [one.worker_id for one in found.workers] == ["c"]
    assert [one.job for one in found.jobs] == ["other-id"]
    assert len(found.groups) == 1


def test_what_is_not_known_is_named_with_what_is() -> None:
    with pytest.raises(UnknownError, match=r"'nope'.*counts, other"):
        select(WHOLE, job="nope")
    with pytest.raises(UnknownError, match=r"'nope'.*a, b, c"):
        select(WHOLE, worker="nope")
