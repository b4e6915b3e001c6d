"""A virtual node whose groups have different owners: a handover to where it is desired brings them together."""

from __future__ import annotations

import pytest

from handover_manager import events as ev
from handover_manager.view import TaskGroup
from rhino_core.errors import AlreadyThereError
from rhino_model.handovers import Phase
from workloads.adaptation.scene import Cluster, Play, group

FIRST, SECOND = group(0, 0), group(1, 0)


@pytest.fixture
def play() -> Play:
    cluster = Cluster("w1", "w2", "w3", "w4")
    cluster.chain(FIRST, "w1 w2")
    cluster.chain(SECOND, "w3 w4")
    play = Play(cluster)
    play.begin(TaskGroup(0, (0, 1), 1))
    play.see()
    assert play.desired("0/0") == "w1"
    return play


def marked(play: Play) -> None:
    play.start("w1", "0/0", deadline_s=30)
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", SECOND, add_member="w1")]
    play(ev.GroupChanged("h1", SECOND, None))
    play.cluster.chain(SECOND, "w3 w4 w1")
    play.see()
    assert play.handover().phase is Phase.MARKED


def test_it_is_brought_together_where_it_is_desired(play: Play) -> None:
    marked(play)
    assert play.of(ev.PushLocations)[0].locations[0].workers[0] == "w1"
    play.batch(4, {FIRST: "w1", SECOND: "w1"})
    assert play.handover().phase is Phase.CONFIRMED
    assert play.of(ev.ChangeGroup) == [ev.ChangeGroup("h1", SECOND, make_owner="w1")]
    play(ev.GroupChanged("h1", SECOND, None))
    play.cluster.chain(SECOND, "w1 w3")
    play.see()
    assert not play.handover().settling
    assert play.desired("0/0") == "w1"
    with pytest.raises(AlreadyThereError, match="on worker w1 already"):
        play.start("w1", "0/0", handover_id="h2")


def test_one_with_a_single_owner_is_there_already(play: Play) -> None:
    play.cluster.chain(SECOND, "w1 w4")
    play.see()
    with pytest.raises(AlreadyThereError, match="0/0 are on worker w1 already"):
        play.start("w1", "0/0")


@pytest.mark.parametrize("owners", ["w1 w3", "w3 w4 w1"])
def test_one_that_is_rolled_back_leaves_nothing_to_unwind(play: Play, owners: str) -> None:
    """The target has become the owner by logged batches meanwhile, or has not."""
    marked(play)
    play.cluster.chain(SECOND, owners)
    play.now = 30.0
    play.see()
    assert play.handover().phase is Phase.ROLLED_BACK
    assert "no origin to go back to" not in play.handover().reason
    asked = play.of(ev.ChangeGroup)
    assert asked == ([ev.ChangeGroup("h1", SECOND, make_owner="w3")] if owners == "w3 w4 w1" else [])
    if asked:
        play(ev.GroupChanged("h1", SECOND, None))
        play.cluster.chain(SECOND, "w3 w4")
        play.now = 32.0
        play.see()
    assert not play.of(ev.ChangeGroup)
    assert not play.handover().unwinding
    assert play.desired("0/0") == "w1"


def test_a_restarted_manager_confirms_it(play: Play) -> None:
    marked(play)
    again = play.restart()
    again.begin(TaskGroup(0, (0, 1), 1), session=2)
    again.see()
    again.batch(5, {FIRST: "w1", SECOND: "w1"})
    assert again.handover().phase is Phase.CONFIRMED


def test_one_whose_target_is_lost_after_the_marker_follows_the_owners(play: Play) -> None:
    marked(play)
    play.cluster.lose("w1")
    play.cluster.chain(FIRST, "w2")
    play.cluster.chain(SECOND, "w3 w4")
    play.see()
    assert play.handover().phase is Phase.REDIRECTED
    assert play.desired("0/0") in ("w2", "w3")
