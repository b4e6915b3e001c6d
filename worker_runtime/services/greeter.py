"""The greeter: learns the connecting Unix user from the kernel, and gives allowed users a token for Attach."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import cast

from rhino_core.errors import AccessDeniedError
from rhino_core.rpc import greeting
from rhino_core.security.audit import AuditLog, Line

TOKEN_S = 60.0  # for which a token counts: a starting JVM with little CPU takes its time
TOKENS_MAX = 4096  # that wait to be used; the oldest are dropped
METHOD = "greeter"  # in the audit log
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def allowed_users(names: str) -> frozenset[int]:
    """The user ids of the setting allow_uid, of root, and of this process. Raises ValueError for an unknown user."""
    return frozenset({0, os.geteuid()} | {_user_id(name.strip()) for name in names.split(",") if name.strip()})


def _user_id(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"there is no Unix user {name!r}") from None


def principal_of(uid: int) -> str:
    """How a Unix user is written in the audit log."""
    return f"uid:{uid}"


class Greeter:
    """Tokens for Unix users. Nobody attaches without one."""

    def __init__(self, allowed: frozenset[int], audit: AuditLog, clock: Callable[[], float]) -> None:
        self._allowed = allowed
        self._audit = audit
        self._clock = clock
        self._tokens: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # user id, and until when it counts
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None

    def bind(self, address: str) -> None:
        """Binds "unix:///path". Raises OSError."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(address.removeprefix("unix://"))

    async def start(self) -> None:
        """Answers from now on, and needs no further attention until `close`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Greeting(self), sock=self._listener)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def answer(self, uid: int, pid: int) -> bytes:
        """The answer to a process of this user. `pid`: its process id, for the audit log."""
        if uid in self._allowed:
            return greeting.agreed(self._token(uid))
        reason = f"the Unix user {uid} is not in --allow-uid, and is neither the sidecar's user nor root"
        line = Line(principal_of(uid), "unix:", METHOD, {"pid": pid}, AccessDeniedError.__name__, 0.0, reason)
        self._audit.write(line, alarm=True)
        return greeting.refused(reason)

    def _token(self, uid: int) -> bytes:
        token = secrets.token_bytes(greeting.TOKEN_BYTES)
        self._tokens[token] = (uid, self._clock() + TOKEN_S)
        if len(self._tokens) > TOKENS_MAX:
            self._tokens.popitem(last=False)
        return token

    def redeem(self, token: bytes) -> int:
        """Returns the user of the token, which does not count again. Raises AccessDeniedError for an invalid one."""
        uid, until = self._tokens.pop(token, (-1, 0.0))
        if self._clock() >= until:
            raise AccessDeniedError(
                f"the attach token is unknown, was used, or is older than {TOKEN_S:g} s; an executor attaches again "
                "with a new one, and has too little CPU if that is refused as well"
            )
        return uid


class _Greeting(asyncio.Protocol):
    """One connection: an answer, and the end. Nothing is read."""

    def __init__(self, greeter: Greeter) -> None:
        self._greeter = greeter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast("asyncio.WriteTransport", transport)  # uvloop's is none by class
        sock = transport.get_extra_info("socket")
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        writer.write(self._greeter.answer(uid, pid))
        writer.close()
