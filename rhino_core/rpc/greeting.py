"""How a client of a sidecar's Unix socket gets its token for Attach.

gRPC does not tell a server the Unix user of a call. So a second socket, the greeter's, lies beside the first one. The
kernel tells the greeter the user of a connection. The greeter sends one answer and closes: a byte for yes or no, then a
token, or else the reason in UTF-8. It reads nothing.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from rhino_core.errors import AccessDeniedError, RemoteProtocolError, UnavailableError
from rhino_core.foreign import ROOT, is_open

TOKEN_BYTES = 16
YES, NO = b"\x01", b"\x00"
REASON_BYTES = 500
ANSWER_TIMEOUT_S = 5.0
_SUFFIX = ".auth"


def greeter_path(path: Path) -> Path:
    """The greeter's socket of the sidecar's socket `path`."""
    return path.with_name(path.name + _SUFFIX)


def agreed(token: bytes) -> bytes:
    return YES + token


def refused(reason: str) -> bytes:
    return NO + reason.encode()[:REASON_BYTES]


def token_in(answer: bytes, where: Path) -> bytes:
    """Returns the token of an answer. Raises AccessDeniedError for a refusal, RemoteProtocolError for anything else."""
    kind, rest = answer[:1], answer[1:]
    if kind == YES and len(rest) == TOKEN_BYTES:
        return rest
    if kind == NO and len(rest) <= REASON_BYTES:
        raise AccessDeniedError(f"the sidecar on {where} refuses this user: {rest.decode(errors='replace')}")
    raise RemoteProtocolError(f"{where}: {len(answer)} bytes, which are no answer of a sidecar's greeter")


def ask(path: Path) -> bytes:
    """Asks the greeter of the sidecar's socket `path` for a token. It counts once and for some seconds.

    Raises AccessDeniedError if the sidecar does not serve this user, or if another user could have put the socket
    there. Raises UnavailableError if no sidecar answers, or if it ends before it has answered; ask again.
    """
    where = greeter_path(path.absolute())
    require_own(path.absolute())
    require_own(where)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        answer = b""
        try:
            connection.connect(str(where))
            while len(answer) <= REASON_BYTES and (part := connection.recv(REASON_BYTES + 2)):
                answer += part
        except (FileNotFoundError, ConnectionRefusedError):
            raise UnavailableError(
                f"no Rhino sidecar answers on {path}: start one on this node, or name its socket (--socket)"
            ) from None
        except OSError as error:
            raise UnavailableError(f"no answer from {where}: {error}; is the sidecar running?") from error
    if not answer:
        raise UnavailableError(f"{where} was closed without an answer; is the sidecar running?")
    return token_in(answer, where)


def require_own(path: Path) -> None:
    """Raises AccessDeniedError if another Unix user than this process's or root can put a socket at `path`, or has done
    so. A missing path is no error.

    The socket's folder must be closed to writers of other users and groups. The folders above may be open to them if
    they are sticky, as /tmp is: then nobody else can rename their content.
    """
    mine = os.geteuid()
    for place in (path, *path.parents):
        try:
            found = os.lstat(place) if place == path else os.stat(place)
        except FileNotFoundError:
            continue
        if found.st_uid not in (mine, ROOT):
            raise AccessDeniedError(
                f"{place} belongs to the Unix user {found.st_uid}, and this process runs as user {mine}: run sidecar "
                "and executors as one user, with the socket in a folder that only this user can write to"
            )
        if place != path and is_open(found, direct=place == path.parent):
            raise AccessDeniedError(
                f"others than the Unix user {mine} can write to {place}, so they could put their socket at {path}: "
                f"run chmod go-w {place}, or give another --socket and spark.rhino.socket"
            )
