"""Each figure of the document is compared with the answer that it is from."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rhino.client.verdict import judge
from rhino.page.model import LISTED_MAX, SAMPLES_MAX, document
from rhino.page.samples import KEPT, Samples
from rhino.page.sums import OfQuery, OnWorker
from rhino_model.codec import plain
from rhino_model.handovers import Phase
from tests.rhino.client.views import JOB
from tests.rhino.page.imagined import BAD_NAME, handover, large, load, small

ANSWERS = small()
OVERVIEW = ANSWERS.overview


def made() -> dict[str, Any]:
    samples = Samples()
    for number in range(3):
        samples.logged(load(number), 1000 + number)
    samples.looked({JOB: 8}, 1005)
    found: dict[str, Any] = json.loads(json.dumps(document(ANSWERS, samples)))
    return found


def as_json(value: object) -> Any:
    return json.loads(json.dumps(plain(value)))


def test_the_verdict_is_that_of_status() -> None:
    assert made()["verdict"] == as_json(judge(OVERVIEW))


def test_totals_are_sums_over_the_overview() -> None:
    assert made()["totals"] == {
        "workers": 4,
        "workers_live": 3,
        "queries": 2,
        "queries_running": 1,
        "virtual_nodes": 4,
        "groups": 4,
        "full": 1,
        "short": 0,
        "below": 2,
        "none": 1,
        "stored_bytes": sum(worker.stored_bytes for worker in OVERVIEW.workers),
        "free_bytes": sum(worker.free_bytes for worker in OVERVIEW.workers if worker.state != "lost"),
    }


def test_a_worker_has_all_of_status_and_its_sums() -> None:
    sums = set(OnWorker.__dataclass_fields__) | {"damaged_files", "safe_to_remove"}
    for shown, worker in zip(made()["workers"], OVERVIEW.workers, strict=True):
        source = as_json(worker)
        assert source.pop("scrub")["missing"] == shown["damaged_files"]
        assert {name: value for name, value in shown.items() if name not in sums} == source
    safe = {one["worker_id"]: one["safe_to_remove"] for one in made()["workers"]}
    assert safe == {"a": None, "b": None, "c": None, "d": False}, "only of a draining worker the manager says it"


def test_a_query_has_all_of_status_and_its_sums() -> None:
    sums = set(OfQuery.__dataclass_fields__) | {"query", "workers", "rows", "archive", "virtual_nodes"}
    sums |= {"batches", "copies_behind", "restarts", "imbalance"}
    shown, other = made()["queries"]
    for query, job in zip((shown, other), OVERVIEW.jobs, strict=True):
        source = as_json(job)
        assert query["virtual_nodes"] == len(source.pop("virtual_nodes"))
        assert {name: value for name, value in query.items() if name not in sums} == source
    assert (shown["query"], other["query"]) == ("counts", BAD_NAME)
    assert (shown["rows"], other["rows"]) == (60, None)
    assert (shown["workers"], other["workers"]) == (1, 1)
    assert shown["archive"] == as_json(OVERVIEW.archive.queries[0])
    assert other["archive"] is None


def test_a_query_has_its_samples() -> None:
    shown, other = made()["queries"]
    assert shown["batches"] == [[1000 + n, n, 0.5, 2.0, 500, max(100.0 * n, 1.0)] for n in range(3)]
    assert (shown["copies_behind"], shown["restarts"]) == ([[1005, 8]], [])
    assert shown["imbalance"] == load(0).imbalance
    assert (other["batches"], other["imbalance"]) == ([], None)


def test_handovers_are_newest_first_with_predicted_and_measured_figures() -> None:
    running, ended = made()["handovers"]
    for shown, source in ((running, ANSWERS.handovers[1]), (ended, ANSWERS.handovers[0])):
        assert shown["handover_id"] == source.handover_id
        assert shown["measured"] == as_json(source.measured)
        assert shown["plan"]["prediction"] == as_json(source.plan.prediction)
        assert shown["plan"]["bytes_to_move"] == source.plan.bytes_to_move == 2000
        assert (shown["bytes_moved"], shown["by"], shown["phase"]) == (1000, source.by, source.phase.value)
        assert (shown["started_ms"], shown["finished_ms"]) == (source.started_ms, source.finished_ms)
        assert (shown["step"], shown["steps"]) == (source.step, 2)
        assert (shown["plan"]["moves_total"], shown["plan"]["queries"]) == (2, ["counts"])
    assert (running["cancellable"], running["ended"], ended["cancellable"], ended["ended"]) == (
        True,
        False,
        False,
        True,
    )
    assert [move["virtual_node"] for move in running["plan"]["moves"]] == ["0/0", "0/1"]
    assert ended["plan"]["moves"] == [], "its moves are history"


def test_drains_decisions_archive_and_actions_are_those_of_the_answers() -> None:
    shown = made()
    assert shown["drains"] == as_json(OVERVIEW.drains)
    assert shown["drains"][0]["blockers"] == ["2 groups lack copies"]
    assert shown["archive"] == as_json(OVERVIEW.archive)
    assert shown["actions"] == as_json(ANSWERS.actions[::-1])
    assert shown["adaptation"] == "act"
    newest, oldest = shown["decisions"]
    for found, source in ((newest, ANSWERS.decisions.decisions[1]), (oldest, ANSWERS.decisions.decisions[0])):
        assert {name: found[name] for name in as_json(source)} == as_json(source)
        assert found["query"] == "counts"
    assert newest["handover"]["measured"]["total_s"] == 5.0
    assert newest["handover"]["plan"]["prediction"]["total_s"] == 4.0
    assert oldest["handover"] is None


def test_the_size_grows_with_workers_and_queries_and_not_with_virtual_nodes() -> None:
    few, many = (len(json.dumps(document(large(50, nodes, 4), Samples()))) for nodes in (400, 4000))
    assert abs(many - few) < few / 20


def test_lists_are_bounded() -> None:
    moves = handover("long", Phase.PREPARING, moves=LISTED_MAX + 20)
    ended = tuple(handover(f"h{n}", Phase.CONFIRMED) for n in range(LISTED_MAX + 20))
    answers = dataclasses.replace(ANSWERS, handovers=(*ended, moves))
    shown = document(answers, Samples())["handovers"]
    assert len(shown) == LISTED_MAX + 1
    assert (len(shown[0]["plan"]["moves"]), shown[0]["plan"]["moves_total"]) == (LISTED_MAX, LISTED_MAX + 20)
    samples = Samples()
    for query in range(500):
        for number in range(KEPT):
            samples.logged(load(number, job_id=f"job-{query}"), number)
    queries = document(large(10, 1000, 500), samples)["queries"]
    assert sum(len(query["batches"]) for query in queries) == SAMPLES_MAX
