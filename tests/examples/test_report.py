"""The figures: fields, what counts as steady, and what makes the demo fail."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from examples.demo.picture import draw
from examples.demo.report import Kill, Observations, make_report, percentile, problems, recovery_prepares, steady
from rhino import Handover, Move, MoveKind, Phase, Plan
from rhino.client.overview import GroupView, JobView, MemberView, Overview, VirtualNodeView
from rhino.testing.choices import HandoverChoice, handover_choice, kill_facts
from rhino.testing.describe import CommitFacts, PrepareFacts, SidecarFacts
from rhino.testing.query_watch import Batch, RunError
from rhino_core.ids import Epoch, GroupId, StoreId, StoreVersion, Version, VirtualNode
from rhino_model.handovers import PlannedStep
from workloads.nexmark.output import Verdict

BATCHES = [Batch(i, 1000 * i, 900 + i) for i in range(40)]
HANDOVER = Handover(
    handover_id="h1",
    phase=Phase.CONFIRMED,
    plan=Plan((PlannedStep((Move(VirtualNode("job", 0, 1), (0,), "a", "b", MoveKind.CHECKPOINT_ASSISTED, 0, 9),)),)),
    reason="",
    configuration_epoch=2,
    started_ms=10_500,
    marked_ms=11_000,
    finished_ms=12_500,
    confirmed_batch_id=12,
    bytes_moved=77,
    waiting_for=(),
)
KILL = Kill("b", 20_100, 20_400, 23_950, frozenset({1, 2}), frozenset({("c", 1), ("c", 2), ("a", 0)}))


def version(partition: int) -> StoreVersion:
    return StoreVersion(StoreId("job", 0, partition, "default"), Version(20, "id"))


def prepare(partition: int, **changes: object) -> PrepareFacts:
    facts = PrepareFacts("c", (version(partition),), "ready", "replica", 0, 4.0 * partition, 21_000, True)
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def sidecar(worker_id: str, prepares: tuple[PrepareFacts, ...] = ()) -> SidecarFacts:
    commits = tuple(CommitFacts(True, float(ms)) for ms in range(1, 101))
    snapshot = CommitFacts(False, 99_999.0)
    return SidecarFacts(worker_id, 50 * 2**20, 1000, prepares, (*commits, snapshot))


def seen(*prepares: PrepareFacts, verdict: Verdict | None = None) -> Observations:
    sidecars = (sidecar("a"), sidecar("b"), sidecar("c", tuple(prepares)))
    found = recovery_prepares(KILL, sidecars)
    return Observations(1000, verdict or Verdict(750, 0, 0), BATCHES, HANDOVER, KILL, found, sidecars)


def test_the_report_has_exactly_the_fields_that_are_promised(tmp_path: Path) -> None:
    make_report(seen(prepare(1), prepare(2))).write(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "events": 1000,
        "rows": 750,
        "missing": 0,
        "extra": 0,
        "steady_batch_ms_p50": 926,
        "handover": {
            "virtual_nodes": ["0/1"],
            "epoch": 2,
            "duration_s": 2.0,
            "switch_batch_ms": 912,
            "bytes_moved": 77,
        },
        "recovery": {
            "detected_s": 0.3,
            "next_batch_s": 3.85,
            "prepare_ms_p50": 8.0,
            "prepare_ms_max": 8.0,
            "source": "replica",
        },
        "commit_ms_p50": 51.0,
        "commit_ms_p99": 100.0,
        "replicated_bytes": 3000,
        "sidecar_rss_mb_max": 50.0,
    }


def test_steady_leaves_out_warm_up_handover_and_recovery() -> None:
    ids = [b.batch_id for b in steady(BATCHES, HANDOVER, KILL)]
    assert ids == [6, 7, 8, 9, *range(13, 20), *range(24, 40)]


def test_all_is_well() -> None:
    assert problems(seen(prepare(1), prepare(2))) == []


def test_lost_and_invented_rows_are_problems() -> None:
    for verdict in (Verdict(749, 1, 0), Verdict(751, 0, 1), Verdict(0, 0, 0)):
        assert problems(seen(prepare(1), prepare(2), verdict=verdict))


@pytest.mark.parametrize(
    "changes", [{"source": "remote"}, {"held_before": False}, {"fetched_bytes": 1}, {"partition": 1, "state": "lost"}]
)
def test_reading_from_afar_in_spite_of_a_whole_replica_is_a_problem(changes: dict[str, object]) -> None:
    partition = int(str(changes.pop("partition", 1)))
    assert problems(seen(prepare(partition, **changes), prepare(2)))


def test_reading_from_afar_without_a_replica_is_none_but_shows_in_the_source() -> None:
    elsewhere = prepare(1, worker_id="a", source="remote", held_before=False, fetched_bytes=5)
    sidecars = (sidecar("a", (elsewhere,)), sidecar("c", (prepare(2),)))
    observations = dataclasses.replace(
        seen(prepare(2)), recovery_prepares=recovery_prepares(KILL, sidecars), sidecars=sidecars
    )
    assert problems(observations) == []
    assert make_report(observations).recovery.source == "remote+replica"


def test_a_moved_virtual_node_that_nobody_prepared_is_a_problem() -> None:
    assert problems(seen(prepare(1)))
    late = prepare(2, finished_ms=KILL.next_batch_ms + 1)
    assert problems(seen(prepare(1), late))


def test_percentile_is_a_nearest_rank() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "latency.png", BATCHES, HANDOVER, KILL)
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def job(**holders: tuple[str, str]) -> JobView:
    """Keyword n<partition>=(desired worker, other holder)."""
    nodes = tuple(
        VirtualNodeView(f"0/{name[1:]}", desired, desired, 0, (desired, other))
        for name, (desired, other) in holders.items()
    )
    return JobView("id", "nbq8", True, 7, 1, nodes)


def test_half_of_the_fullest_worker_goes_to_the_best_replica() -> None:
    view = job(n0=("a", "b"), n1=("a", "c"), n2=("a", "c"), n3=("a", "b"), n4=("b", "a"), n5=("c", "a"), n6=("c", "b"))
    assert handover_choice(view) == HandoverChoice(("0/0", "0/3"), "a", "b")


def test_an_idle_worker_with_replicas_is_a_target() -> None:
    view = job(n0=("a", "c"), n1=("a", "c"), n2=("b", "c"))
    assert handover_choice(view) == HandoverChoice(("0/0",), "a", "c")


def test_without_another_copy_nothing_can_be_handed_over() -> None:
    with pytest.raises(RunError, match="all virtual nodes are on a"):
        handover_choice(job(n0=("a", "a"), n1=("a", "a")))


def test_kill_facts_name_whole_copies_of_this_job_only() -> None:
    members = (MemberView("a", "live", True, 3, 1), MemberView("b", "live", False, 2, 1))
    ids = (GroupId("id", 0, 4), GroupId("x", 0, 5))
    groups = tuple(GroupView(group, Epoch(1, 1), 2, 2, 0, members) for group in ids)
    overview = Overview(1, (), groups, (job(n4=("a", "b"), n5=("b", "a")),))
    assert kill_facts(overview, "nbq8", "a") == (frozenset({4}), frozenset({("a", 4)}))
