"""Restore drills: which group is restored by whom and when, and what is said of the result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager.archive import events as ev
from handover_manager.archive.drills import RETRY_S, ArchivedBatch, Drills
from handover_manager.archive.events import Outcome
from handover_manager.archive.machine import ArchiveMachine
from rhino_archive.manifest import CheckpointFile, Extent, Manifest, Part, digest_of
from rhino_core.ids import GroupId, StoreId, StoreVersion, Version
from workloads.adaptation.scene import JOB, Cluster, group

EVERY_S = 300.0
OTHER_JOB = "job-b"


def batch(number: int, partitions: int = 4, job: str = JOB) -> ArchivedBatch:
    stores = (StoreId(job, 0, partition, name) for partition in range(partitions) for name in ("left", "right"))
    versions = tuple(StoreVersion(store, Version(number + 1, f"a{number}")) for store in stores)
    return ArchivedBatch(number, f"{job}/batches/{number}-d", versions)


class Play:
    """Feeds drills with archived batches; `now` is set by the test."""

    def __init__(self, cluster: Cluster, every_s: float = EVERY_S) -> None:
        self.drills = Drills(every_s)
        self.cluster = cluster
        self.batches = {JOB: batch(1)}
        self.now = 0.0

    def begin(self) -> ev.Drill | None:
        found = self.drills.begin(self.batches, self.cluster.view, self.now)
        return found[0] if found else None

    def next(self) -> ev.Drill:
        """At the next deadline."""
        self.begin()
        deadline = self.drills.next_deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        found = self.begin()
        assert found is not None
        return found

    def end(self, drill: ev.Drill, outcome: Outcome, why: str = "") -> list[str]:
        """What people are told."""
        told = self.drills.ended(ev.DrillEnded(drill.number, outcome, why), self.batches, self.now)
        return [one.error for one in told]


@pytest.fixture
def play() -> Play:
    cluster = Cluster("w1", "w2", "w3")
    for partition in range(4):
        cluster.chain(group(0, partition), "w1 w2")
    return Play(cluster)


def test_a_drill_comes_in_each_interval_with_all_versions_of_a_group(play: Play) -> None:
    assert play.begin() is None, "not at once"
    drill = play.next()
    assert (play.now, drill.batch_id, drill.manifest) == (EVERY_S, 1, f"{JOB}/batches/1-d")
    assert [version.store.store for version in drill.versions] == ["left", "right"]
    assert {version.store.group for version in drill.versions} == {drill.group}
    assert drill.worker.worker_id == "w2", "no owner"
    assert play.drills.next_deadline() is None
    play.now += 10_000
    assert play.begin() is None, "one at a time"
    assert play.end(drill, Outcome.PASSED) == []
    assert (play.drills.next_deadline(), play.drills.passed_at) == (play.now + EVERY_S, play.now)
    play.batches[JOB] = batch(9)
    assert play.next().batch_id == 9


def test_all_groups_get_their_turn(play: Play) -> None:
    seen = set()
    for _ in range(40):
        drill = play.next()
        play.end(drill, Outcome.PASSED)
        seen.add(drill.group)
    assert seen == {group(0, partition) for partition in range(4)}
    assert play.drills.counts == {Outcome.PASSED: 40}


def test_queries_take_turns(play: Play) -> None:
    play.batches[OTHER_JOB] = batch(5, job=OTHER_JOB)
    for partition in range(4):
        play.cluster.chain(GroupId(OTHER_JOB, 0, partition), "w1 w3")
    jobs = []
    for _ in range(4):
        drill = play.next()
        jobs.append(drill.job)
        play.end(drill, Outcome.PASSED)
    assert jobs == [JOB, OTHER_JOB, JOB, OTHER_JOB]


def test_the_owner_does_it_when_no_other_worker_can(play: Play) -> None:
    play.cluster.lose("w2")
    assert play.next().worker.worker_id == "w1"


def test_without_a_worker_it_is_not_run_and_is_tried_again_soon(play: Play) -> None:
    play.cluster.lose("w1")
    play.cluster.lose("w2")
    play.begin()
    pauses = []
    for _ in range(10):
        deadline = play.drills.next_deadline()
        assert deadline is not None
        pauses.append(deadline - play.now)
        play.now = deadline
        assert play.begin() is None
    assert pauses == [EVERY_S, *(RETRY_S * 2**n for n in range(8)), EVERY_S]
    assert play.drills.counts == {Outcome.NOT_RUN: 10}
    assert play.drills.why.startswith("no reachable worker holds a whole copy of")
    assert (play.drills.failures, play.drills.passed_at) == ({}, 0.0)
    play.cluster.worker("w2")
    play.end(play.next(), Outcome.PASSED)
    assert (play.drills.why, play.drills.next_deadline()) == ("", play.now + EVERY_S)


def test_a_drill_that_could_not_run_is_repeated_with_a_newer_batch(play: Play) -> None:
    drill = play.next()
    assert play.end(drill, Outcome.NOT_RUN, "it is not here") == []
    assert play.drills.why == "it is not here"
    play.batches[JOB] = batch(2)
    again = play.next()
    assert (play.now, again.batch_id) == (EVERY_S + RETRY_S, 2)


def test_a_failed_drill_is_told_with_what_it_is_about(play: Play) -> None:
    drill = play.next()
    (told,) = play.end(drill, Outcome.FAILED, "pack aa is damaged")
    assert told == f"batch 1, {drill.versions[0]}, {drill.versions[1]}, {JOB}/batches/1-d: pack aa is damaged"
    assert play.drills.failures == {drill.group: told}
    assert play.drills.counts == {Outcome.FAILED: 1}
    assert play.drills.passed_at == 0.0


def test_a_failed_group_is_tried_again_until_it_passes(play: Play) -> None:
    failed = play.next()
    play.end(failed, Outcome.FAILED, "damaged")
    tried = []
    while play.drills.failures:
        drill = play.next()
        play.end(drill, Outcome.PASSED)
        tried.append(drill.group)
    assert tried[-1] == failed.group
    assert len(tried) < 10
    play.end(play.next(), Outcome.FAILED, "damaged")
    play.drills.forget(JOB)
    assert play.drills.failures == {}


def test_only_a_missing_manifest_that_should_be_there_is_a_failure(play: Play) -> None:
    old = play.next()
    play.batches[JOB] = batch(2)
    assert play.end(old, Outcome.MISSING, "has no manifest") == []
    newest = play.next()
    assert len(play.end(newest, Outcome.MISSING, "has no manifest")) == 1
    assert play.drills.counts == {Outcome.NOT_RUN: 1, Outcome.FAILED: 1}


def test_content_that_only_spark_can_read_has_neither_passed_nor_failed(play: Play) -> None:
    assert play.end(play.next(), Outcome.UNPROVEN, "values are merged") == []
    assert (play.drills.counts, play.drills.failures) == ({Outcome.UNPROVEN: 1}, {})
    assert (play.drills.passed_at, play.drills.next_deadline()) == (0.0, play.now + EVERY_S)


def test_a_query_that_is_gone_fails_no_drill(play: Play) -> None:
    drill = play.next()
    del play.batches[JOB]
    assert play.end(drill, Outcome.FAILED, "damaged") == []
    assert play.drills.failures == {}
    assert play.begin() is None
    assert play.drills.next_deadline() is None, "nothing to wait for"


def test_answers_to_a_former_drill_do_not_count(play: Play) -> None:
    drill = play.next()
    play.end(replace(drill, number=drill.number - 1), Outcome.FAILED)
    assert play.drills.failures == {}
    assert play.begin() is None


def test_zero_is_never(play: Play) -> None:
    play.drills = Drills(0.0)
    play.now = 1e9
    assert (play.begin(), play.drills.next_deadline()) == (None, None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(Outcome)), st.integers(0, 3), st.booleans()), max_size=40))
def test_whatever_comes_there_is_always_another_drill_and_every_end_counts_once(
    steps: list[tuple[Outcome, int, bool]],
) -> None:
    cluster = Cluster("w1", "w2")
    for partition in range(4):
        cluster.chain(group(0, partition), "w1 w2")
    play = Play(cluster)
    for number, (outcome, newer, away) in enumerate(steps):
        before = play.now
        drill = play.next()
        assert play.now - before <= EVERY_S
        if newer:
            play.batches[JOB] = batch(number + newer)
        if away:
            del play.batches[JOB]
        play.end(drill, outcome, "why")
        play.batches.setdefault(JOB, batch(number))
        assert sum(play.drills.counts.values()) == number + 1
        assert Outcome.MISSING not in play.drills.counts


def test_the_machine_drills_the_batch_that_it_has_archived() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    machine = ArchiveMachine(10.0, "cluster", EVERY_S)
    versions = batch(7, partitions=1).versions
    known = ev.BatchKnown(JOB, 7, versions, 1007, "q", "/ckpt")
    part = Part(Extent("aa", 0, 1), 0, (group(0, 0),), ("aa",))

    def manifest(digest: str) -> Manifest:
        return Manifest(JOB, 7, 1007, 1, "cluster", "q", "/ckpt", digest, (part,))

    machine.handle(ev.ViewSeen(cluster.view), now=0.0)
    machine.handle(known, now=0.0)
    machine.handle(ev.NewestFound(JOB, manifest("another")), now=0.0)
    machine.handle(ev.CheckpointRead(JOB, 7, (CheckpointFile("metadata", b"x"),)), now=0.0)
    assert machine.handle(ev.Due(), now=EVERY_S) == [], "the versions of the archived batch are not known"
    (write,) = machine.handle(ev.PartUploaded(JOB, 1, "w2", part), now=EVERY_S)
    assert isinstance(write, ev.WriteManifest)
    assert write.manifest.digest == digest_of(versions)
    machine.handle(ev.ManifestWritten(1, write.manifest), now=EVERY_S)
    assert machine.next_deadline() == 2 * EVERY_S
    (drill,) = machine.handle(ev.Due(), now=2 * EVERY_S)
    assert isinstance(drill, ev.Drill)
    assert (drill.manifest, drill.versions) == (write.manifest.name, versions)
    (told,) = machine.handle(ev.DrillEnded(drill.number, Outcome.FAILED, "damaged"), now=2 * EVERY_S)
    assert isinstance(told, ev.DrillFailed)
    machine.handle(ev.StepFailed(JOB, 0, "of another cluster", stranger=True), now=2 * EVERY_S)
    assert machine.handle(ev.Due(), now=5 * EVERY_S)[1:] == [], "another cluster's archive"
    machine.handle(ev.JobGone(JOB), now=5 * EVERY_S)
    assert machine.drills.failures == {}
