"""Checks whether a server can listen at an address, and explains why not."""

from __future__ import annotations

import errno
import socket

from rhino_core.errors import InvalidSettingError, RhinoError, UnavailableError


def check_free(address: str) -> None:
    """Binds "host:port" for a moment. Raises UnavailableError or InvalidSettingError, as `listen_error` returns them.

    A name may have several addresses. As for gRPC, one that can be bound suffices: on machines without IPv6 `localhost`
    often still resolves to `::1`, too.
    """
    host, _, port = address.rpartition(":")
    failures: list[OSError] = []
    try:
        infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:
        raise listen_error(address, error) from error
    for family, kind, protocol, _, target in infos:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
        except OSError as error:
            failures.append(error)
    taken = next((error for error in failures if error.errno == errno.EADDRINUSE), None)
    if taken is not None or len(failures) == len(infos):
        raise listen_error(address, taken or failures[0]) from (taken or failures[0])


def listen_error(address: str, error: Exception) -> RhinoError:
    """UnavailableError if the address is in use; InvalidSettingError if it is not local or not permitted."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return UnavailableError(f"cannot listen on {address}: another process does; stop it, or choose another port")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidSettingError(
        f"cannot listen on {address}: {why}; give a name or address of this machine and a port that this user may use"
    )
