"""The calls in the audit log, and their entries."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from rhino_core.errors import AccessDeniedError
from rhino_core.security.audit import ACCEPTED, CANCELLED, ENDED, OK, AuditLog, Line
from rhino_core.security.identity import Identity

# Calls by which people change a cluster.
ASKED_BY_PEOPLE = frozenset(
    {
        *("StartHandover", "CancelHandover", "DrainWorker", "MoveCheckpoint", "SetJobOwner"),
        *("ForgetJob", "UndoForgetJob", "ForgetWorker", "StartScrub"),
    }
)
SESSIONS = frozenset({"DriverSession", "Attach"})  # a line when the first reply accepts it, and one when it ends
# The only fields that are shown. So no secret gets into the log, such as a lease, and nothing long.
_SHOWN = frozenset(
    {
        *("job", "virtual_nodes", "target", "handover_id", "location", "owner", "by", "cancel", "dry_run", "now"),
        *("worker", "worker_id", "workers", "incarnation", "peer_address"),
        *("application_id", "host", "client"),
    }
)
_ENTERED = frozenset(
    {"request", "worker", "sender", "group", "store", "hello", "drain", "rebalance", "scale_out", "scale_in"}
)
_OF_REPLY = ("job", "handover_id")  # the id for a name that the request has, and the id of what has begun
LIST_MAX = 20  # names of a list
NAME_CHARACTERS = 256


class Call:
    """One call of a method. Every way out ends with at most one line, and so does the acceptance of a session.

    Names are taken from the messages only for a line, because most calls have none.
    """

    __slots__ = (
        "_began",
        "_context",
        "_is_of_interest",
        "_log",
        "_method",
        "_names",
        "_noted",
        "_peer",
        "_principal",
        "_request",
        "caller",
    )

    def __init__(self, log: AuditLog, method: str, context: Any) -> None:
        """`method`: "/service/name". `context`: of the gRPC call."""
        self._log = log
        self._method = method
        self._context = context
        self._began = time.monotonic()
        self._is_of_interest = self._name in ASKED_BY_PEOPLE or self._name in SESSIONS
        self._peer = context.peer() if self._is_of_interest else ""  # once the caller has gone, gRPC knows it no longer
        self._request: Message | None = None
        self._names: dict[str, object] | None = None  # of an accepted session
        self._principal = ""  # of a caller without a certificate
        self._noted: dict[str, object] = {}
        self.caller: Identity | None = None

    @property
    def _name(self) -> str:
        return self._method.rpartition("/")[2]

    def asks(self, request: Any) -> None:
        """The request, or one of a stream. An unreadable one has no names."""
        self._request = request if isinstance(request, Message) else None

    def note(self, **names: str) -> None:
        """The call changes something for the log, with these names."""
        self._noted |= names
        self._is_of_interest = True

    def is_by(self, principal: str) -> None:
        """Names a caller without a certificate."""
        self._principal = principal

    def answers(self) -> None:
        """One of the replies of a stream."""
        if self._names is None and self._name in SESSIONS:
            self._names = self._asked()
            self._write(ACCEPTED)

    def ended(self, reply: Any = None) -> None:
        """It ended well. `reply`: of a call with a single one."""
        if self._is_of_interest:
            asked = self._asked()
            for name in _OF_REPLY:
                value = getattr(reply, name, "")
                if value and value != asked.get(name):
                    self._noted[f"{name}_found" if name in asked else name] = value
            self._write(OK if self._names is None else ENDED)

    def cancelled(self) -> None:
        """The caller waits no longer, or the server stops. The server may have made the change before."""
        if self._is_of_interest:
            self._write(CANCELLED if self._names is None else ENDED)

    def failed(self, error: Exception, reason: str) -> bool:
        """Returns whether the log has it. `reason`: as told to the caller."""
        denied = isinstance(error, AccessDeniedError)
        if denied or self._is_of_interest:
            self._write(type(error).__name__, reason, alarm=denied)
        return denied or self._is_of_interest

    def _asked(self) -> dict[str, object]:
        if self._names is not None:
            return self._names
        return dict(_names_of(self._request)) if self._request is not None else {}

    def _write(self, outcome: str, reason: str = "", *, alarm: bool = False) -> None:
        principal = self.caller.uri if self.caller is not None else self._principal
        names, took = self._asked() | self._noted, time.monotonic() - self._began
        line = Line(principal, self._peer or self._context.peer(), self._method, names, outcome, took, reason)
        self._log.write(line, alarm=alarm)


_current: contextvars.ContextVar[Call] = contextvars.ContextVar("call")


def begin(call: Call) -> None:
    """Makes `note` mean this call, in the task that serves it."""
    _current.set(call)


def note(**names: str) -> None:
    """The present call changes something for the audit log, with these names.

    Does nothing outside a call.
    """
    if (call := _current.get(None)) is not None:
        call.note(**names)


def principal(name: str) -> None:
    """The present call comes from this principal, without a certificate. Does nothing outside a call."""
    if (call := _current.get(None)) is not None:
        call.is_by(name)


def _names_of(message: Message) -> Iterable[tuple[str, object]]:
    for field, value in message.ListFields():
        if isinstance(value, Message):
            if field.name in _ENTERED:
                if field.containing_oneof is not None and field.containing_oneof.name == "intent":
                    yield "intent", field.name
                yield from _names_of(value)
        elif field.name not in _SHOWN:
            continue
        elif isinstance(value, str | bool | int):
            yield field.name, value[:NAME_CHARACTERS] if isinstance(value, str) else value
        else:
            names = [str(one)[:NAME_CHARACTERS] for one in value[:LIST_MAX]]
            yield field.name, [*names, f"and {len(value) - LIST_MAX} more"] if len(value) > LIST_MAX else names
