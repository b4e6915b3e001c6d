from __future__ import annotations

import pytest

from rhino.page import actions
from rhino.page.actions import Actions, parse_action
from rhino_core.errors import InvalidRequestError, UnknownError
from rhino_core.security.audit import AuditLog


def test_a_move_has_its_virtual_nodes() -> None:
    found = parse_action({"kind": "move", "job": "j", "virtual_nodes": "0/2, 0/4-5", "target": "w", "other": 1})
    assert (found.kind, found.virtual_nodes) == ("move", ("0/2", "0/4", "0/5"))
    assert found.names == {"job": "j", "virtual_nodes": "0/2, 0/4-5", "target": "w"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (None, "kind None"),
        ([], "kind None"),
        ({"kind": ["move"]}, "kind"),
        ({"kind": "forget", "job": "j"}, "kind 'forget'"),
        ({"kind": "drain"}, "worker None"),
        ({"kind": "drain", "worker": ""}, "worker ''"),
        ({"kind": "drain", "worker": {"a": 1}}, "worker"),
        ({"kind": "move", "job": "j", "target": "w", "virtual_nodes": "all"}, "virtual node 'all'"),
        ({"kind": "cancel", "handover_id": 3}, "handover_id 3"),
    ],
)
def test_malformed_requests_are_named(body: object, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        parse_action(body)


@pytest.mark.parametrize("body", [None, {}, {"id": "guessed"}, {"id": ["x"]}])
def test_only_a_shown_plan_is_carried_out(body: object) -> None:
    with pytest.raises(UnknownError, match="look at it once more"):
        Actions("127.0.0.1:1", AuditLog(), "uid:1").run(body, "ipv4:127.0.0.1:1")


def test_plans_that_wait_are_bounded_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions.Action, "plan", lambda self, client: {})
    monkeypatch.setattr(actions.Action, "run", lambda self, client: None)
    made = Actions("127.0.0.1:1", AuditLog(), "uid:1")
    shown = [made.plan({"kind": "drain", "worker": f"w{n}"})["id"] for n in range(actions.SHOWN_MAX + 1)]
    with pytest.raises(UnknownError):
        made.run({"id": shown[0]}, "")
    assert made.run({"id": shown[1]}, "") == {"done": "drain"}
    with pytest.raises(UnknownError):
        made.run({"id": shown[1]}, "")
    monkeypatch.setattr(actions, "SHOWN_S", -1.0)
    with pytest.raises(UnknownError):
        made.run({"id": made.plan({"kind": "drain", "worker": "w"})["id"]}, "")
