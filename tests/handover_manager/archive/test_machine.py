"""Rounds of the archive machine: who uploads, what happens when somebody fails, and when a manifest is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager.archive import events as ev
from handover_manager.archive.machine import CHECKPOINT_S_MAX, NEWEST_S_MAX, RETRY_S, ROUND_S_MAX, ArchiveMachine
from rhino_archive.manifest import CheckpointFile, Extent, Manifest, Part
from rhino_core.ids import GroupId, StoreId, StoreVersion, Version
from workloads.adaptation.scene import JOB, Cluster, group

EVERY_S = 10.0


def versions(batch: int, partitions: int, history: str = "a") -> tuple[StoreVersion, ...]:
    stores = (StoreId(JOB, 0, partition, "default") for partition in range(partitions))
    return tuple(StoreVersion(store, Version(batch + 1, f"{history}{batch}")) for store in stores)


def part(*groups: GroupId) -> Part:
    return Part(Extent("aa", 0, 1), 0, groups, ("aa",))


class Play:
    """Feeds the machine; `now` is set by the test. Uploads are answered by the test, steps at once."""

    def __init__(self, cluster: Cluster, newest: Manifest | None = None, requests_a_day: int = 0) -> None:
        self.machine = ArchiveMachine(EVERY_S, "cluster-1", requests_a_day=requests_a_day)
        self.now = 0.0
        self.newest = newest
        self.written: list[Manifest] = []
        self.uploads: dict[str, ev.Upload] = {}
        self.stopped: list[int] = []
        self.searches = 0
        self.driver = True
        self.asked_for: list[int] = []
        self(ev.ViewSeen(cluster.view))

    def __call__(self, event: ev.Event) -> None:
        effects = self.machine.handle(event, now=self.now)
        self.machine.check_invariants()
        for effect in effects:
            match effect:
                case ev.FindNewest(job):
                    self.searches += 1
                    self(ev.NewestFound(job, self.newest))
                case ev.ReadCheckpoint(job, batch_id):
                    self.asked_for.append(batch_id)
                    if self.driver:
                        self(ev.CheckpointRead(job, batch_id, (CheckpointFile("metadata", b"x"),)))
                case ev.Upload(_, _, worker):
                    assert worker.worker_id not in self.uploads
                    self.uploads[worker.worker_id] = effect
                case ev.WriteManifest(number, manifest):
                    self.newest = replace(manifest, written_ms=1)
                    self.written.append(manifest)
                    self(ev.ManifestWritten(number, self.newest))
                case ev.StopUploads(_, number):
                    self.stopped.append(number)
                    self.uploads.clear()

    def logged(self, batch: int, partitions: int = 2, history: str = "a") -> None:
        self(ev.BatchKnown(JOB, batch, versions(batch, partitions, history), 1000 + batch, "q", "/ckpt"))

    def uploaded(self, worker: str, *refused: GroupId) -> None:
        upload = self.uploads.pop(worker)
        made = [one for one in dict.fromkeys(v.store.group for v in upload.versions) if one not in refused]
        found = part(*made) if made else None
        self(ev.PartUploaded(JOB, upload.round, worker, found, refused, requests=4))

    def failed(self, worker: str, *, archive: bool = False) -> None:
        upload = self.uploads.pop(worker)
        self(ev.UploadFailed(JOB, upload.round, worker, f"{worker} broke", archive=archive))

    def tick(self) -> None:
        """To the next deadline."""
        deadline = self.machine.next_deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        self(ev.Due())


def asked(play: Play) -> dict[str, list[int]]:
    return {name: [v.store.partition for v in upload.versions] for name, upload in play.uploads.items()}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster("w1", "w2", "w3")
    made.chain(group(0, 0), "w1 w2")
    made.chain(group(0, 1), "w2 w3")
    return made


def test_replicas_upload_and_the_manifest_comes_last(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(7)
    assert asked(play) == {"w2": [0], "w3": [1]}, "no owner"
    play.uploaded("w3")
    assert play.written == []
    play.uploaded("w2")
    (manifest,) = play.written
    assert (manifest.batch_id, manifest.logged_ms, manifest.query, manifest.cluster) == (7, 1007, "q", "cluster-1")
    assert {g for p in manifest.parts for g in p.groups} == {group(0, 0), group(0, 1)}
    assert play.machine.queries[JOB].newest == play.newest


def test_the_files_of_the_checkpoint_go_with_the_batch(cluster: Cluster) -> None:
    play = Play(cluster)
    play.driver = False
    play.logged(3)
    play.uploaded("w2")
    play.uploaded("w3")
    assert (play.asked_for, play.written) == ([3], [])
    play(ev.CheckpointRead(JOB, 2, (CheckpointFile("offsets/2", b"old"),)))
    assert play.written == [], "of another batch"
    play(ev.CheckpointRead(JOB, 3, (CheckpointFile("offsets/3", b"x"),)))
    assert [manifest.checkpoint for manifest in play.written] == [(("offsets/3", b"x"),)]


def test_the_files_that_a_driver_sends_at_the_end_of_a_query_are_kept(cluster: Cluster) -> None:
    play = Play(cluster)
    play.driver = False
    play.logged(3)
    play(ev.CheckpointRead(JOB, 3, (CheckpointFile("offsets/3", b"x"),)))
    play.failed("w2", archive=True)
    play.tick()
    play.uploaded("w2")
    play.uploaded("w3")
    assert (play.asked_for, play.written[0].checkpoint) == ([3], (("offsets/3", b"x"),))


def test_files_of_a_former_history_do_not_go_with_a_batch(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(3)
    play.uploaded("w2")
    play.uploaded("w3")
    play.driver = False
    play.now += EVERY_S
    play.logged(3, history="b")  # after a rewind
    assert play.asked_for == [3, 3]


def test_a_driver_that_does_not_answer_stops_nothing(cluster: Cluster) -> None:
    play = Play(cluster)
    play.driver = False
    play.logged(3)
    play.tick()
    assert (play.now, play.written) == (CHECKPOINT_S_MAX, [])
    play.uploaded("w2")
    play.uploaded("w3")
    assert [manifest.checkpoint for manifest in play.written] == [()]


def test_the_next_round_has_the_newest_batch_and_names_the_one_before(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.logged(2)
    play.uploaded("w2")
    play.uploaded("w3")
    play.logged(3)
    play.logged(4)
    assert play.uploads == {}, "not before its time"
    play.tick()
    assert play.now == EVERY_S
    groups = {version.store.group for version in play.uploads["w2"].versions}
    assert [({*one.groups}, one.packs) for one in play.uploads["w2"].basis] == [(groups, ())]
    play.uploaded("w2")
    play.uploaded("w3")
    assert [manifest.batch_id for manifest in play.written] == [1, 4]
    assert play.machine.next_deadline() is None, "nothing new"


def test_slow_uploads_make_the_interval_longer_and_the_newest_batch_comes_next(cluster: Cluster) -> None:
    play = Play(cluster)
    query = play.machine.queries
    for batch, took_s in ((1, 0.0), (11, 4 * EVERY_S), (21, 0.0)):
        play.logged(batch)
        play.uploaded("w2")
        play.now += took_s
        for newer in range(batch + 1, batch + 4):
            play.logged(newer)
        play.uploaded("w3")
        expected = (4 * EVERY_S, "the uploads") if took_s else (EVERY_S, "")
        assert (query[JOB].every_s, query[JOB].why) == expected
        if not took_s:  # else the next round has begun
            assert query[JOB].round is None
            play.tick()
        play.uploaded("w2")
        play.uploaded("w3")
        play.now += EVERY_S
    assert [manifest.batch_id for manifest in play.written] == [1, 4, 11, 14, 21, 24]


def test_a_limit_of_requests_makes_the_interval_longer(cluster: Cluster) -> None:
    play = Play(cluster, requests_a_day=1000)
    for batch in (1, 2):
        play.logged(batch)
        play.uploaded("w2")
        play.uploaded("w3")
        query = play.machine.queries[JOB]
        assert query.every_s == pytest.approx(864.0), "10 requests of 1000 a day"
        assert query.why == "the limit of requests"
        play.logged(batch + 10)
        assert play.machine.next_deadline() == pytest.approx(play.now + 864.0)
        play.tick()
        play.uploaded("w2")
        play.uploaded("w3")
        play.now += 864.0
    assert [manifest.batch_id for manifest in play.written] == [1, 11, 2, 12]


def test_the_newest_batch_is_looked_up_again_after_hours_and_when_somebody_asks(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.uploaded("w2")
    play.uploaded("w3")
    play.now = NEWEST_S_MAX
    play.logged(2)
    assert play.searches == 1, "its packs outlive another round"
    play.uploaded("w2")
    play.uploaded("w3")
    play.newest = None  # somebody has moved it away
    play(ev.ArchiveWanted(JOB))
    assert play.searches == 2
    assert {worker: upload.basis for worker, upload in play.uploads.items()} == {"w2": (), "w3": ()}
    play.uploaded("w2")
    play.uploaded("w3")
    play.now = 2 * NEWEST_S_MAX + 1
    play.logged(3)
    assert play.searches == 3


def test_the_owner_uploads_when_no_other_member_is_whole_and_reachable(cluster: Cluster) -> None:
    cluster.chain(group(0, 0), "w1 w2?")
    cluster.lose("w3")
    play = Play(cluster)
    play.logged(1)
    assert asked(play) == {"w1": [0], "w2": [1]}


def test_the_next_member_takes_over_from_one_that_fails_or_refuses(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.failed("w2")
    assert asked(play) == {"w3": [1], "w1": [0]}
    play.uploaded("w3", group(0, 1))
    assert asked(play) == {"w1": [0], "w2": [1]}
    play.uploaded("w1")
    play.uploaded("w2")
    assert len(play.written) == 1
    assert play.machine.queries[JOB].error == ""


def test_a_worker_gets_further_groups_once_it_has_done_its_own(cluster: Cluster) -> None:
    cluster.chain(group(0, 1), "w1 w2")
    cluster.chain(group(0, 2), "w2 w3")
    play = Play(cluster)
    play.logged(1, partitions=3)
    assert asked(play) == {"w2": [0, 1], "w3": [2]}
    play.failed("w3")
    assert asked(play) == {"w2": [0, 1]}
    play.uploaded("w2")
    assert asked(play) == {"w2": [2]}
    play.uploaded("w2")
    assert len(play.written) == 1


def test_a_round_without_another_candidate_ends_with_a_reason_and_comes_again(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.failed("w2")
    play.failed("w1")
    assert play.stopped == [1]
    query = play.machine.queries[JOB]
    assert (query.round, query.error) == (None, "w1 broke")
    play.tick()
    assert play.now == RETRY_S
    assert asked(play) == {"w2": [0], "w3": [1]}
    play.uploaded("w2")
    play.uploaded("w3")
    assert (len(play.written), query.error, query.failures) == (1, "", 0)


def test_an_archive_that_refuses_ends_the_round_at_once(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.failed("w2", archive=True)
    assert (play.uploads, play.stopped) == ({}, [1])


def test_pauses_grow_to_a_minute(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    pauses = []
    for _ in range(8):
        before = play.now
        play.failed("w2", archive=True)
        play.tick()
        pauses.append(play.now - before)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_group_without_any_whole_copy_is_named(cluster: Cluster) -> None:
    cluster.chain(group(0, 1), "w2? w3?")
    play = Play(cluster)
    play.logged(1)
    assert play.machine.queries[JOB].error == f"no reachable worker holds a whole copy of {group(0, 1)}"


def test_a_batch_that_the_archive_has_is_not_archived_again_and_another_history_is(cluster: Cluster) -> None:
    first = Play(cluster)
    first.logged(5)
    first.uploaded("w2")
    first.uploaded("w3")
    play = Play(cluster, newest=first.newest)
    play.logged(5)
    assert (play.searches, play.uploads) == (1, {})
    play.logged(5, history="b")  # after a rewind
    play.now += EVERY_S
    play(ev.Due())
    assert play.uploads.keys() == {"w2", "w3"}


def test_after_a_failed_step_the_archive_is_read_again(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play(ev.StepFailed(JOB, 1, "of another cluster", stranger=True))
    query = play.machine.queries[JOB]
    assert (query.round, query.error, query.stranger) == (None, "of another cluster", True)
    play.uploads.clear()
    play.tick()
    assert (play.searches, query.stranger) == (2, False)
    assert play.uploads.keys() == {"w2", "w3"}


def test_somebody_who_wants_it_now_does_not_wait(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.uploaded("w2")
    play.uploaded("w3")
    play.logged(2)
    assert play.uploads == {}
    play(ev.ArchiveWanted(JOB))
    assert play.uploads.keys() == {"w2", "w3"}


def test_answers_to_a_former_round_do_not_count(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.failed("w2", archive=True)
    play.tick()
    play(ev.PartUploaded(JOB, 1, "w2", part(group(0, 0))))
    play(ev.PartUploaded(JOB, 1, "w3", part(group(0, 1))))
    play(ev.ManifestWritten(1, Manifest(JOB, 1, 0, 0, "", "", "", "d", ())))
    assert play.machine.queries[JOB].newest is None
    assert play.uploads.keys() == {"w2", "w3"}


def test_a_round_ends_before_its_packs_may_be_deleted(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play.tick()
    assert play.now == ROUND_S_MAX
    assert play.stopped == [1]
    assert "too long" in play.machine.queries[JOB].error


def test_an_answer_that_comes_too_late_does_not_count(cluster: Cluster) -> None:
    """After a pause of the manager it comes before the deadline of its round."""
    play = Play(cluster)
    play.logged(1)
    play.uploaded("w2")
    play.now = ROUND_S_MAX
    upload = play.uploads["w3"]
    play(ev.PartUploaded(JOB, upload.round, "w3", part(group(0, 1))))
    assert (play.written, play.stopped) == ([], [1])


@pytest.mark.parametrize(("batch", "ends"), [(6, True), (7, True), (8, False)])
def test_a_rewind_ends_the_round_of_a_later_batch(cluster: Cluster, batch: int, ends: bool) -> None:
    """Its batch is of a former history. The driver's files for a batch of this number may be of the new one."""
    play = Play(cluster)
    play.logged(7)
    play.logged(batch, history="b")
    assert play.stopped == ([1] if ends else [])
    play(ev.CheckpointRead(JOB, 7, (CheckpointFile("offsets/7", b"new"),)))
    if ends:
        play.tick()
    play.uploaded("w2")
    play.uploaded("w3")
    assert [manifest.batch_id for manifest in play.written] == [batch if ends else 7]


def test_a_repeated_report_of_a_batch_ends_nothing(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(7)
    play.logged(7)
    assert (play.stopped, len(play.uploads)) == ([], 2)


def test_a_forgotten_query_is_left_alone(cluster: Cluster) -> None:
    play = Play(cluster)
    play.logged(1)
    play(ev.JobGone(JOB))
    assert (play.stopped, play.machine.queries, play.machine.next_deadline()) == ([1], {}, None)
    play(ev.PartUploaded(JOB, 1, "w2", part(group(0, 0))))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_with_any_failures_it_ends_with_a_whole_manifest_of_the_newest_batch(data: st.DataObject) -> None:
    cluster = Cluster("w1", "w2", "w3", "w4")
    for partition in range(6):
        chain = data.draw(st.permutations(["w1", "w2", "w3", "w4"]))
        cluster.chain(group(0, partition), " ".join(chain[: data.draw(st.integers(1, 4))]))
    play = Play(cluster)
    play.logged(0, partitions=6)
    newest = 0
    for _ in range(data.draw(st.integers(0, 30))):
        step = data.draw(st.sampled_from(["done", "refused", "failed", "archive", "logged", "tick", "lost"]))
        worker = data.draw(st.sampled_from(sorted(play.uploads))) if play.uploads else None
        if step == "logged":
            newest += 1
            play.logged(newest, partitions=6)
        elif step == "tick" and play.machine.next_deadline() is not None:
            play.tick()
        elif step == "lost":
            seen = {
                name: replace(w, live=False, reachable=data.draw(st.booleans())) for name, w in cluster.workers.items()
            }
            play(ev.ViewSeen(replace(cluster.view, workers=seen)))
        elif worker and step == "done":
            play.uploaded(worker)
        elif worker and step == "refused":
            play.uploaded(worker, play.uploads[worker].versions[0].store.group)
        elif worker and step in ("failed", "archive"):
            play.failed(worker, archive=step == "archive")
    play(ev.ViewSeen(cluster.view))
    for _ in range(60):
        if play.newest is not None and play.newest.batch_id == newest:
            break
        for worker in sorted(play.uploads):
            play.uploaded(worker)
        if not play.uploads and play.machine.next_deadline() is not None:
            play.tick()
    assert play.newest is not None
    assert play.newest.batch_id == newest
    assert all({g for p in m.parts for g in p.groups} == {group(0, p) for p in range(6)} for m in play.written)
