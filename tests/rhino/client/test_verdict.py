"""The verdict on a cluster: its level, and reasons with numbers and names."""

from __future__ import annotations

import dataclasses

import pytest

from rhino.client.overview import GroupView, JobView, WorkerView
from rhino.client.scrub import NO_SCRUB
from rhino.client.verdict import Level, Verdict, judge
from rhino_core.ids import JobSettings
from rhino_model.archives import Archive, ArchivedQuery, DrillCounts
from tests.rhino.client.views import JOB, group, job, node, overview, worker

ALL = (worker("a"), worker("b"), worker("c"))
COUNTS = job(node(0, "a", "a"), node(1, "b", "b"))


def test_a_whole_cluster_is_ok_without_reasons() -> None:
    verdict = judge(overview(ALL, [group(0, "a b"), group(1, "b c")], [COUNTS]))
    assert (verdict.level, verdict.reasons, verdict.hints) == (Level.OK, (), ())


@pytest.mark.parametrize(
    ("workers", "groups", "level", "reason"),
    [
        ((), [], Level.DEGRADED, "0 workers live"),
        ((worker("a"), worker("b", "lost")), [], Level.DEGRADED, "1 of 2 workers lost: b"),
        ((worker("a"), worker("b", "suspect")), [], Level.DEGRADED, "1 of 2 workers suspect: b"),
        ((worker("a", disk="failing"),), [], Level.DEGRADED, "1 of 1 disks failing: a"),
        ((worker("a", disk="full"),), [], Level.DEGRADED, "1 of 1 disks full: a"),
        (ALL, [group(0, "a b-")], Level.DEGRADED, "1 of 1 replica groups has fewer complete copies than minCopies"),
        (ALL, [group(0, "a! b-")], Level.CRITICAL, "1 of 1 replica groups has no complete copy on a reachable worker"),
        (
            ALL,
            [group(0, "a b c-", settings=JobSettings(replication_factor=2))],
            Level.DEGRADED,
            "1 of 1 replica groups has fewer complete copies than replicationFactor + 1: counts/0/0",
        ),
    ],
)
def test_what_is_missing_is_counted_and_named(
    workers: tuple[WorkerView, ...], groups: list[GroupView], level: Level, reason: str
) -> None:
    verdict = judge(overview(workers, groups, [COUNTS]))
    assert verdict.level is level
    assert any(text.startswith(reason) for text in verdict.reasons), verdict.reasons


def test_the_worst_reason_is_the_first_and_many_names_are_counted() -> None:
    lost = [worker(name, "lost") for name in "vwxyz"]
    verdict = judge(overview([*ALL, *lost], [group(0, "v! w!"), group(1, "a b")], [COUNTS]))
    assert verdict.level is Level.CRITICAL
    assert verdict.reasons[0].endswith("no complete copy on a reachable worker: counts/0/0")
    assert verdict.reasons[1] == "5 of 8 workers lost: v, w, x and 2 more"


def test_damage_that_is_not_repaired_is_a_reason() -> None:
    scrub = dataclasses.replace(NO_SCRUB, number=1, errors=3, repaired=1)
    verdict = judge(overview([dataclasses.replace(ALL[0], scrub=scrub)]))
    assert verdict.reasons == ("2 damaged files not repaired yet: a",)


def test_copies_that_share_a_host_are_a_hint() -> None:
    shared = (worker("a", host="h"), worker("b", host="h"), worker("c", host="i"))
    verdict = judge(overview(shared, [group(0, "a b"), group(1, "a c")], [COUNTS]))
    assert verdict.level is Level.OK
    assert verdict.hints == ("all copies of 1 of 2 replica groups are on one host, and are lost with it: h",)


def test_plain_connections_are_a_hint() -> None:
    seen = overview([worker("a")])
    assert judge(seen).hints == ()
    assert judge(dataclasses.replace(seen, insecure=True)).hints[0].startswith("no encryption and no identities")


def test_several_versions_are_a_hint() -> None:
    mixed = [dataclasses.replace(worker(name), rhino_version=version) for name, version in (("a", "1.0"), ("b", "1.1"))]
    seen = dataclasses.replace(overview(mixed), rhino_version="1.1")
    assert judge(seen).level is Level.OK
    assert judge(seen).hints == ("2 versions of Rhino run: 1.0, 1.1; `--section versions` shows where",)
    same = dataclasses.replace(seen, workers=tuple(mixed[1:]))
    assert judge(same).hints == ()
    driver = dataclasses.replace(COUNTS, rhino_version="1.1")
    assert judge(dataclasses.replace(same, jobs=(driver,))).hints == ()
    older = dataclasses.replace(driver, rhino_version="")
    assert (
        judge(dataclasses.replace(same, jobs=(older,))).hints[0].startswith("2 versions of Rhino run: 1.1, an earlier")
    )
    away = dataclasses.replace(older, connected=False)
    assert judge(dataclasses.replace(same, jobs=(away,))).hints == ()


def test_queries_with_the_same_name_are_named_with_a_part_of_their_ids() -> None:
    twins = [job(node(0, "a", "b"), job_id=name, missed=1) for name in ("one", "two")]
    verdict = judge(overview(ALL, [group(0, "a-", job="one"), group(0, "a b", job="two")], twins))
    assert verdict.reasons == ("1 of 2 replica groups has no complete copy on a reachable worker: counts@one/0/0",)
    assert verdict.hints == ("2 virtual nodes ran elsewhere than desired in the newest batch: counts@one, counts@two",)


def test_zones_that_are_missing_or_not_used_are_hints() -> None:
    here = tuple(dataclasses.replace(worker(name), zone=zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")))
    bare = worker("d")
    verdict = judge(overview((*here, bare), [group(0, "a b"), group(1, "a c"), group(2, "a d")], [COUNTS]))
    assert verdict.level is Level.OK
    assert verdict.hints == (
        "1 of 4 workers have no zone: d; it may be that of any other worker, so copies go to known other zones first; "
        "set --zone of their sidecars",
        "all copies of 1 of 3 replica groups are in one zone, and are lost with it: z1",
    )
    one_zone = judge(overview(here[:2], [group(0, "a b")], [COUNTS]))
    assert one_zone.hints == (), "there is no other zone to use"


def test_a_query_without_a_batch_for_minutes_is_a_hint_and_then_a_reason() -> None:
    """It may have no new data. Its workers alone never make it OK."""

    def seen(*jobs: JobView) -> Verdict:
        return judge(overview(ALL, [group(0, "a b")], jobs))

    other = dataclasses.replace(job(name="other", job_id="two"), batch_ago_s=3.0, executors=4)
    quiet = dataclasses.replace(COUNTS, batch_ago_s=119.0, executors=0)
    assert seen(quiet, other).hints == ()
    later = seen(dataclasses.replace(quiet, batch_ago_s=180.0), other)
    text = "1 of 2 running queries without a batch for minutes: counts (3 min 0 s, no executor); is there no new data?"
    assert (later.level, later.hints) == (Level.OK, (text,))
    silent = seen(dataclasses.replace(quiet, batch_ago_s=600.0, executors=2), other)
    text = "1 of 2 running queries without a batch for minutes: counts (10 min 0 s); is there no new data?"
    assert (silent.level, silent.reasons, silent.hints) == (Level.DEGRADED, (text,), ())
    hourly = dataclasses.replace(quiet, batch_ago_s=3000.0, batch_interval_s=3600.0)
    assert seen(hourly, other).level is Level.OK
    gone = dataclasses.replace(quiet, connected=False, batch_ago_s=None, executors=None)
    assert seen(gone, other).level is Level.OK


def archived(age_s: float = 0.0, error: str = "", name: str = JOB) -> ArchivedQuery:
    return ArchivedQuery(name, "counts", 3, 1, 2, 4, age_s == 0.0, age_s, True, error)


@pytest.mark.parametrize(
    ("every_s", "query", "reasons"),
    [
        (10.0, archived(60.0), ()),
        (10.0, archived(60.1), ("query counts: the archive is 1 min 0 s behind",)),
        (60.0, archived(359.0), ()),
        (60.0, archived(361.0, "w1 broke"), ("query counts: the archive is 6 min 1 s behind: w1 broke",)),
        (10.0, archived(5.0, "w1 broke"), ("query counts is not archived: w1 broke",)),
        (10.0, archived(0.0, "w1 broke", "gone"), ("query gone is not archived: w1 broke",)),
    ],
)
def test_an_archive_that_is_late_or_has_an_error_is_a_reason(
    every_s: float, query: ArchivedQuery, reasons: tuple[str, ...]
) -> None:
    seen = dataclasses.replace(overview(ALL, jobs=[COUNTS]), archive=Archive("/a", "c", (query,), every_s))
    assert judge(seen).reasons == reasons
    assert judge(seen).level is (Level.DEGRADED if reasons else Level.OK)


def test_an_archive_that_has_stopped_and_failed_drills_are_reasons() -> None:
    drills = DrillCounts(300.0, failed=5, failures=("batch 1: damaged", "b", "c", "d"))
    archive = Archive("/a", "c", (), 10.0, error="KeyError: 1", drills=drills)
    assert judge(dataclasses.replace(overview(ALL), archive=archive)).reasons == (
        "the archive has stopped: KeyError: 1; start the manager again",
        "4 restore drills failed: batch 1: damaged, b, c and 1 more",
    )


def test_witnesses_that_do_not_answer_or_share_a_place() -> None:
    at = tuple(dataclasses.replace(worker(name), zone=zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")))
    seen = overview(at)
    addresses = tuple(one.peer_address for one in at)
    assert judge(dataclasses.replace(seen, witnesses=(addresses[0], addresses[2], "elsewhere:7462"))).hints == ()
    verdict = judge(dataclasses.replace(seen, witnesses=addresses, silent_witnesses=addresses[1:2]))
    assert (verdict.level, verdict.reasons) == (Level.DEGRADED, (f"1 of 3 witnesses silent: {addresses[1]}",))
    assert verdict.hints == ("2 of 3 witnesses are in zone z1: managers stop without it",)
    bare = dataclasses.replace(seen, workers=(worker("a"), worker("b"), worker("c")), witnesses=addresses)
    assert [hint for hint in judge(bare).hints if "witness" in hint] == []
