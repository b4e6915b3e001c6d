"""Maps of desired workers: where they come from, when they change, and how a lost worker's nodes spread."""

from __future__ import annotations

import dataclasses
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.plan.locations import make_locations, rank_workers
from handover_manager.view import TaskGroup
from rhino_core.ids import StoreId, StoreVersion, Version, VirtualNode
from workloads.adaptation.scene import JOB, Cluster, Play, group, node


def test_the_owner_is_desired_once_it_is_known() -> None:
    cluster = Cluster("w1", "w2")
    play = Play(cluster)
    play.begin()
    assert play.of(ev.PushLocations)[0].locations == ()
    cluster.chain(group(0, 1), "w2 w1")
    play.see()
    push = play.of(ev.PushLocations)[0]
    assert (push.session, push.configuration_epoch) == (1, 1)
    assert [tuple(loc) for loc in push.locations] == [(0, 1, ("w2", "w1"))]
    assert push.hosts == (("w1", "host-w1"), ("w2", "host-w2"))
    assert not play.see()


def test_a_lost_worker_moves_its_nodes_at_once_under_a_new_epoch() -> None:
    cluster = Cluster("w1", "w2", "w3")
    cluster.chain(group(0, 0), "w1 w2")
    cluster.chain(group(0, 1), "w3 w1")
    play = Play(cluster)
    play.begin()
    play.see()
    cluster.lose("w1")
    cluster.chain(group(0, 0), "w2 w3?")
    cluster.chain(group(0, 1), "w3 w2?")
    play.see()
    push = play.of(ev.PushLocations)[0]
    assert push.configuration_epoch == 2
    assert [loc.workers for loc in push.locations] == [("w2",), ("w3",)]


def two_nodes_of_a_lost_worker() -> Play:
    """With copies on w2 and w3, of which the replication manager has made w2 the owner of both."""
    cluster = Cluster("w1", "w2", "w3")
    play = Play(cluster)
    play.begin()
    chain_both(play, "w1 w2 w3")
    sent_to = {loc.partition: loc.workers[1] for loc in play.of(ev.PushLocations)[0].locations}
    assert sent_to == {0: "w2", 1: "w3"}
    cluster.lose("w1")
    chain_both(play, "w2 w3")
    return play


def chain_both(play: Play, members: str) -> None:
    for partition in (0, 1):
        play.cluster.chain(group(0, partition), members, factor=2)
    play.see()


def test_where_the_map_sent_a_lost_workers_nodes_they_stay_until_the_owner_follows() -> None:
    play = two_nodes_of_a_lost_worker()
    assert [play.desired("0/0"), play.desired("0/1")] == ["w2", "w3"]
    assert not play.see()
    play.cluster.chain(group(0, 1), "w3 w2", factor=2)  # after two batches
    play.see()
    play.cluster.chain(group(0, 1), "w2 w3", factor=2)  # from now on the owner counts again
    play.see()
    assert play.desired("0/1") == "w2"


def test_an_heir_at_which_nothing_runs_leaves_it_to_the_owner() -> None:
    """The query has no executor there: else the map would be disobeyed for as long as the heir is a member."""
    play = two_nodes_of_a_lost_worker()
    revisions = {JOB: 1}
    view = dataclasses.replace(play.cluster.view, revisions=revisions)
    play(ev.ClusterSeen(view))
    for batch_id, writer in enumerate(["w2", "w3", "w2", "w2"], start=1):
        assert play.desired("0/1") == "w3"
        play.batch(batch_id, {group(0, 1): writer})
        play(ev.ClusterSeen(view))
    assert play.desired("0/1") == "w2"


def test_an_heir_that_is_lost_too_leaves_it_to_the_owner() -> None:
    play = two_nodes_of_a_lost_worker()
    play.cluster.lose("w3")
    chain_both(play, "w2")
    assert [play.desired("0/0"), play.desired("0/1")] == ["w2", "w2"]


def test_new_holders_are_pushed_without_a_new_epoch() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2?")
    play = Play(cluster)
    play.begin()
    play.see()
    cluster.chain(group(0, 0), "w1 w2")
    play.see()
    push = play.of(ev.PushLocations)[0]
    assert (push.configuration_epoch, push.locations[0].workers) == (1, ("w1", "w2"))


def test_a_new_run_and_a_reconnected_driver_get_the_map_again() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    play = Play(cluster)
    play.begin()
    play.see()
    play(ev.SessionClosed(1))
    assert play.core.jobs[JOB].run.session is None
    play.begin(session=2, run_id="run-2")
    push = play.of(ev.PushLocations)[0]
    assert (push.session, push.configuration_epoch, len(push.locations)) == (2, 1, 1)
    play(ev.SessionClosed(1))
    play(ev.QueryEnded(1, JOB, "run-1"))
    assert play.core.jobs[JOB].run.session == 2
    play(ev.QueryEnded(2, JOB, "run-2"))
    assert play.core.jobs[JOB].run.session is None


def test_a_restarted_manager_keeps_the_map_until_workers_had_time_to_return() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    play = Play(cluster)
    play.begin()
    play.see()
    cluster.lose("w1")
    after = play.restart()
    after.begin(session=2)
    after.see()
    assert (after.desired("0/0"), after.core.jobs[JOB].map.configuration_epoch) == ("w1", 1)
    after.now += SETTLE_S
    after.see()
    assert (after.desired("0/0"), after.core.jobs[JOB].map.configuration_epoch) == ("w2", 2)


def test_misses_count_batches_that_ran_elsewhere_but_not_the_one_under_a_marker() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0,), 1))
    play.see()
    play.batch(0, {group(0, 0): "w1"})
    play.batch(1, {group(0, 0): "w2"})
    job = play.core.jobs[JOB]
    assert (job.logged.actual[node("0/0")], job.logged.misses[node("0/0")]) == ("w2", 1)
    play.start("w2", "0/0")
    play.batch(2, {group(0, 0): "w1"})  # was running when the marker came
    assert job.logged.misses[node("0/0")] == 1
    play.batch(3, {group(0, 0): "w1"})
    assert job.logged.misses[node("0/0")] == 2
    assert job.logged.newest_id == 3


def test_answers_about_batches_may_overtake_each_other() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0,), 1))
    play.see()
    store = StoreId(*group(0, 0), "default")
    older, newer = StoreVersion(store, Version(1, "a")), StoreVersion(store, Version(2, "b"))
    play(ev.BatchLogged(1, JOB, "run-1", 0, (older,)))
    play(ev.BatchLogged(1, JOB, "run-1", 1, (newer,)))
    play(ev.WritersFound(JOB, 1, {newer: "w1"}))
    play(ev.WritersFound(JOB, 0, {older: "w2"}))
    job = play.core.jobs[JOB]
    assert (job.logged.actual[node("0/0")], job.logged.misses[node("0/0")]) == ("w1", 1)


def test_late_batches_of_an_older_run_and_unknown_jobs_are_ignored() -> None:
    play = Play(Cluster("w1"))
    play.begin()
    assert not play.batch(1, {group(0, 0): "w1"}, run_id="run-0")
    version = StoreVersion(StoreId("other", 0, 0, "default"), Version(2, "w1-1"))
    assert not play(ev.BatchLogged(1, "other", "run-1", 1, (version,)))
    assert not play(ev.WritersFound("other", 1, {version: "w1"}))


def test_several_jobs_have_their_own_maps() -> None:
    cluster = Cluster("w1", "w2")
    cluster.chain(group(0, 0), "w1 w2")
    cluster.chain(group(0, 0, "job-b"), "w2 w1")
    play = Play(cluster)
    play.begin(session=1)
    play.begin(session=2, job="job-b", name="other")
    play.see()
    assert {(p.session, p.job, p.locations[0].workers[0]) for p in play.of(ev.PushLocations)} == {
        (1, JOB, "w1"),
        (2, "job-b", "w2"),
    }


@given(st.lists(st.permutations(["w1", "w2", "w3", "w4"]), min_size=1, max_size=24), st.integers(2, 4))
def test_fallbacks_spread(chains: list[list[str]], copies: int) -> None:
    cluster = Cluster("w1", "w2", "w3", "w4")
    for partition, chain in enumerate(chains):
        cluster.chain(group(0, partition), " ".join(chain[:copies]))
    nodes = {VirtualNode(JOB, 0, p): (0,) for p in range(len(chains))}
    desired = {n: chains[n.partition][0] for n in nodes}
    ranked = rank_workers(cluster.view, nodes, desired)
    assert all(set(ranked[n]) == set(chains[n.partition][:copies]) for n in nodes)
    assert all(ranked[n][0] == desired[n] for n in nodes)
    if copies == 4:
        for lost in set(desired.values()):
            seconds = Counter(ranked[n][1] for n in nodes if desired[n] == lost)
            assert max(seconds.values()) <= -(-sum(seconds.values()) // 3)
    assert [loc.partition for loc in make_locations(cluster.view, ranked).locations] == list(range(len(chains)))
