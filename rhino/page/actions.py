"""The actions of the page: each is planned and shown first, and the shown one is carried out once.

The calls are those of `rhino handover`, `rhino plan` and `rhino drain`, with the certificate of this process.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rhino.client.handover_client import HandoverClient
from rhino.client.overview import query_names
from rhino.client.virtual_nodes import parse_virtual_nodes
from rhino.page.model import LISTED_MAX, handover_fields, plan_fields
from rhino_core.errors import AlreadyThereError, InvalidRequestError, RhinoError, UnknownError
from rhino_core.security.audit import OK, AuditLog, Line
from rhino_model.codec import plain
from rhino_model.handovers import Plan
from rhino_model.intents import Drain

SHOWN_MAX, SHOWN_S = 100, 600.0  # plans that wait for an answer, and for how long
NAME_MAX = 500  # characters of a name in the audit log
# The kinds of actions, and the fields of each one
FIELDS = {"move": ("job", "virtual_nodes", "target"), "drain": ("worker",), "end drain": ("worker",)}
FIELDS |= {"cancel": ("handover_id",)}


@dataclass(frozen=True, slots=True)
class Action:
    """A request of a person. `names`: the fields of its kind, all texts that are not empty."""

    kind: str
    names: Mapping[str, str]
    virtual_nodes: tuple[str, ...] = ()  # of a move

    def plan(self, client: HandoverClient) -> dict[str, Any]:
        """Asks what would happen: `plan`, `drain` or `handover`. Changes nothing. Raises RhinoErrors."""
        queries = query_names(client.jobs())
        plan: Plan | None = None
        match self.kind:
            case "move":
                plan = client.plan(self.names["job"], self.virtual_nodes, self.names["target"])
                return {"plan": plan_fields(plan, queries, LISTED_MAX)}
            case "cancel":
                found = [one for one in client.list() if one.handover_id == self.names["handover_id"]]
                if not found:
                    raise UnknownError(f"handover {self.names['handover_id']!r} is not known to the manager")
                return {"handover": handover_fields(found[0], queries)}
            case "drain":
                with contextlib.suppress(AlreadyThereError):  # no virtual node is there
                    plan = client.plan("", intent=Drain(self.names["worker"]))
        drain = plain(client.drain_status(self.names["worker"]))
        return {"drain": drain, "plan": None if plan is None else plan_fields(plan, queries, LISTED_MAX)}

    def run(self, client: HandoverClient) -> None:
        """Carries it out. Raises RhinoErrors."""
        match self.kind:
            case "move":
                client.start(self.names["job"], self.virtual_nodes, self.names["target"])
            case "cancel":
                client.cancel(self.names["handover_id"])
            case _:
                client.drain(self.names["worker"], cancel=self.kind == "end drain")


def parse_action(body: Any) -> Action:
    """Returns the action of a request of the page. Raises InvalidRequestError."""
    kind = body.get("kind") if isinstance(body, Mapping) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        raise InvalidRequestError(f"kind {kind!r}: must be one of {', '.join(FIELDS)}")
    names = {name: body.get(name) for name in FIELDS[kind]}
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            raise InvalidRequestError(f"{name} {value!r}: must be a text that is not empty")
    return Action(kind, names, parse_virtual_nodes(names.get("virtual_nodes", "").replace(",", " ").split()))


class Actions:
    """Plans actions, and carries out planned ones. The methods block, and may be called by any thread."""

    def __init__(self, manager: str, audit: AuditLog, user: str) -> None:
        """`user`: of this process, for the audit log: whoever has the token has it from there."""
        self._manager = manager
        self._audit = audit
        self._user = user
        self._shown: dict[str, tuple[float, Action]] = {}  # by id, with the monotonic time of its end

    def plan(self, body: Any) -> dict[str, Any]:
        """Plans what the body asks for. The answer has an `id` for `run`. Raises RhinoErrors."""
        action = parse_action(body)
        with HandoverClient(self._manager) as client:
            planned = action.plan(client)
        while len(self._shown) >= SHOWN_MAX:
            self._shown.pop(next(iter(self._shown)), None)
        name = secrets.token_urlsafe(12)
        self._shown[name] = (time.monotonic() + SHOWN_S, action)
        return {"id": name, "kind": action.kind, "names": action.names, **planned}

    def run(self, body: Any, peer: str) -> dict[str, Any]:
        """Carries out a planned action, once, with a line in the audit log. Raises RhinoErrors."""
        began = time.monotonic()
        name = body.get("id") if isinstance(body, Mapping) else None
        until, action = self._shown.pop(str(name), (0.0, None))
        if action is None or began > until:
            raise UnknownError("this plan is not known any more: look at it once more")
        outcome, reason = OK, ""
        try:
            with HandoverClient(self._manager) as client:
                action.run(client)
        except RhinoError as error:
            outcome, reason = type(error).__name__, str(error)
            raise
        finally:
            names = {key: value[:NAME_MAX] for key, value in action.names.items()}
            took = time.monotonic() - began
            self._audit.write(Line(self._user, peer, f"page {action.kind}", names, outcome, took, reason))
        return {"done": action.kind}
