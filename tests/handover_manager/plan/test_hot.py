"""Plans name virtual nodes that are heavier than a worker's share: they stay, and everything else leaves."""

from __future__ import annotations

import pytest

from handover_manager.drive.handover import DrivenHandover, make_steps
from handover_manager.drive.records import HandoverRecord, handover_of_record, record_of_handover
from handover_manager.plan.work import Work
from rhino.cli.handover import show_plan
from rhino_core import errors
from rhino_core.records import decode as decode_record
from rhino_core.records import encode
from rhino_core.rpc import gate
from rhino_model import handovers
from rhino_model.codec import decode, plain
from rhino_model.codec import encode as encode_message
from rhino_model.handovers import Plan
from rhino_model.intents import Drain, Rebalance, Request, Weight
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.support.work import report, running
from workloads.adaptation.scene import JOB, Play, node


def with_hot_node() -> Play:
    """0/0 has as many rows as all others together; two of these are on its worker."""
    play = running(*["w1 w2"] * 3, *["w2 w3"] * 2, *["w3 w1"] * 2, workers="w1 w2 w3")
    report(play, 0, {"0/0": Work(600, 0.1)} | {f"0/{partition}": Work(100, 0.1) for partition in range(1, 7)})
    return play


def rebalanced() -> Plan:
    return with_hot_node().plan(Request(JOB, intent=Rebalance(Weight.ROWS)))


def test_it_is_named_with_its_shares_and_everything_else_leaves_its_worker() -> None:
    plan = rebalanced()
    (hot,) = plan.hot
    assert (hot.node, hot.worker, hot.by) == (node("0/0"), "w1", Weight.ROWS)
    assert hot.shares == pytest.approx(600 / (1200 / 3))
    assert {move.node.name for move in plan.moves} == {"0/1", "0/2"}
    assert "w1" not in {move.target for move in plan.moves}


def test_users_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    message = encode_message(pb.HandoverPlan, rebalanced())
    gate.check(message)
    shown = decode(handovers.Plan, message)
    show_plan(shown, {JOB: "counts"})
    line = "hot: counts 0/0 has 1.50 x a worker's share of rows; keys are not split, so the others leave w1"
    assert line in capsys.readouterr().out
    (listed,) = plain(shown)["hot"]
    assert listed == {
        "job": JOB,
        "node": "0/0",
        "virtual_node": "0/0",
        "worker": "w1",
        "by": "rows",
        "shares": 1.5,
    }


def test_it_is_named_when_nothing_has_to_move() -> None:
    play = running("w1 w2", "w2 w1", "w2 w1")
    report(play, 0, {"0/0": Work(600, 0.1), "0/1": Work(100, 0.1), "0/2": Work(100, 0.1)})
    with pytest.raises(
        errors.AlreadyThereError, match=r"nothing has to move; virtual node 0/0 has 1\.50 x .* leave w1"
    ):
        play.plan(Request(JOB, intent=Rebalance(Weight.ROWS)))


def test_what_is_even_and_what_is_not_to_be_balanced_has_none() -> None:
    play = running("w1 w2", "w1 w2", "w1 w2", "w2 w1")
    report(play, 0, {f"0/{partition}": Work(100, 0.1) for partition in range(4)})
    assert play.plan(Request(JOB, intent=Rebalance(Weight.ROWS))).hot == ()
    assert with_hot_node().plan(Request(JOB, intent=Drain("w1"))).hot == ()


def test_a_restarted_manager_remembers_it() -> None:
    plan = rebalanced()
    handover = DrivenHandover("h", plan, 10.0, 0, make_steps("h", plan))
    value = encode(record_of_handover(handover))
    assert handover_of_record(decode_record(HandoverRecord, value, "h"), {}).plan.hot == plan.hot
