"""The guard before every request: host, token, origin. It also sets the headers that protect the page.

Files of the page have no data and are for everybody. All paths below `/data` need the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rhino_core.ids import is_loopback
from rhino_core.security.audit import AuditLog, Line

DATA = "/data/"
METHOD = "page"  # in the audit log
PATH_MAX = 100  # characters of a refused path in the audit log
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Refusal(NamedTuple):
    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Access:
    """`token`: of all callers. `host`: the one that the page listens on; `names`: further ones of this machine.

    `read_only`: nothing can be changed.
    """

    token: str
    host: str
    names: frozenset[str] = frozenset()
    read_only: bool = False

    def refusal(self, method: str, scheme: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is refused; None: it is not. The names of the headers are in lower case."""
        host = headers.get("host", "")
        if not self._is_mine(host):
            return Refusal(421, f"host {host!r} is no name of this page: open it by the printed address, or by an IP")
        if not path.startswith(DATA):
            return None if method in ("GET", "HEAD") else Refusal(405, f"{method} {path}: GET only")
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return Refusal(401, "the token is missing or wrong: `rhino ui` prints it when it starts")
        return None if method == "GET" else self._of_change(method, f"{scheme}://{host}", headers)

    def _of_change(self, method: str, origin: str, headers: Mapping[str, str]) -> Refusal | None:
        if method != "POST":
            return Refusal(405, f"{method}: GET and POST only")
        if headers.get("origin", "") != origin:
            return Refusal(403, f"origin {headers.get('origin', '')!r} is not this page, {origin!r}")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "the content type must be application/json")
        return Refusal(403, "this page is read-only: it was started with --read-only") if self.read_only else None

    def _is_mine(self, host: str) -> bool:
        """Another site can lead its own name to this address, but no number (DNS rebinding). Ports are not compared."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.host.lower(), *self.names):
            return True
        try:
            found = ipaddress.ip_address(name)
        except ValueError:
            return False
        return found.is_loopback or not is_loopback(self.host)


class Guard:
    """The ASGI application around another one. Refused requests get a line in the audit log."""

    def __init__(self, app: ASGIApp, access: Access, audit: AuditLog) -> None:
        self._app = app
        self._access = access
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path, headers = scope["path"], Headers(scope=scope)

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                sent.update(HEADERS)
                sent["cache-control"] = "no-store" if path.startswith(DATA) else "no-cache"
            await send(message)

        refusal = self._access.refusal(scope["method"], scope["scheme"], path, headers)
        if refusal is None:
            await self._app(scope, receive, protected)
            return
        line = Line("", peer_of(scope), METHOD, {"path": path[:PATH_MAX]}, "AccessDeniedError", 0.0, refusal.reason)
        self._audit.write(line)
        content = {"error": {"kind": "AccessDeniedError", "message": refusal.reason}}
        challenge = {"www-authenticate": "Bearer"} if refusal.status == 401 else None
        await JSONResponse(content, refusal.status, challenge)(scope, receive, protected)


def peer_of(scope: Scope) -> str:
    """The address of the browser, as gRPC writes addresses."""
    host, port = scope.get("client") or ("", 0)
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
