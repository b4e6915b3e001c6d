"""Alarms for people: somebody has changed the bytes of a push stream on their way, or has no right to open one."""

from __future__ import annotations

import logging
import socket

from rhino_core.ids import Lane
from rhino_core.security.audit import AuditLog, Line
from worker_runtime.push.core.records import CUT, UNFINISHED, TamperedError
from worker_runtime.push.opening import NOT_ENCRYPTED, Encryption
from worker_runtime.statistics import Statistics

log = logging.getLogger(__name__)
METHOD = "push"  # in the audit log
NO_TICKET = "no ticket"  # an outcome there; the others are the kinds of alarms


class Alarms:
    """The alarms of both ends of all streams of a sidecar. Call them on the event loop.

    The audit log has a line for each, with the identity of the stream's worker, proved when the stream was opened.
    Nobody knows the author of the change.
    """

    def __init__(
        self, statistics: Statistics, audit: AuditLog | None = None, encryption: Encryption = NOT_ENCRYPTED
    ) -> None:
        """`audit`: None: audit lines go to the ordinary log only. `encryption`: knows the identities of workers."""
        self._statistics = statistics
        self._audit = audit if audit is not None else AuditLog()
        self._encryption = encryption

    def tampered(self, peer: str, lane: Lane, error: TamperedError, address: str) -> None:
        """`peer`: the worker at the other end. `address`: where it is, or seems to be."""
        self._statistics.push_alarms[error.kind] += 1
        level = logging.WARNING if error.kind in (CUT, UNFINISHED) else logging.ERROR  # processes that end do both, too
        what = "push stream ended: its bytes are not those that the peer has sent"
        if error.kind == UNFINISHED:
            what = "push stream refused: a connection has used the ticket of the peer, and has not finished"
        log.log(level, what, extra={"peer": peer, "lane": lane.value, "kind": error.kind, "error": str(error)})
        principal = "" if self._encryption.identity is None else str(self._encryption.identity_of(peer))
        names = {"worker": peer, "lane": lane.value}
        self._audit.write(Line(principal, address, METHOD, names, error.kind, 0.0, str(error)), alarm=True)

    def refused(self, address: str) -> None:
        """A connection without a valid token in time. Nothing is known of it but its address."""
        why = "the token of a ticket is unknown, was used, is too old, or did not come"
        self._audit.write(Line("", address, METHOD, {}, NO_TICKET, 0.0, why), alarm=True)


def address_of(sock: socket.socket) -> str:
    """The other end, as gRPC writes it. Empty: the connection has ended."""
    try:
        host, port, *_ = sock.getpeername()
    except (OSError, ValueError):  # a pair of sockets has no addresses
        return ""
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
