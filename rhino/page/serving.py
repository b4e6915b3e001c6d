"""The process of `rhino ui`: the socket, the token, and the server until Ctrl-C."""

from __future__ import annotations

import html
import os
import secrets
import socket
import ssl
import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from rhino.page.actions import Actions
from rhino.page.app import make_app
from rhino.page.guard import Access, Guard
from rhino.page.watcher import Watcher
from rhino_core.errors import InvalidSettingError, UnavailableError
from rhino_core.ids import ALL_INTERFACES, is_loopback
from rhino_core.security.audit import AuditLog
from rhino_core.version import rhino_version

CONNECTIONS_MAX = 200
END_S = 2  # for answers under way


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The options of `rhino ui`. Empty texts: not given."""

    manager: str
    host: str
    port: int
    interval_s: float
    read_only: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    audit_log: str = ""


class Page:
    """A server on its socket, before `run`. `address` has the token, as a fragment: no browser sends it on."""

    def __init__(self, settings: PageSettings) -> None:
        """Raises InvalidSettingError for certificates and files, UnavailableError for the address."""
        _check_tls(settings)
        audit = AuditLog(settings.audit_log)
        self._socket = _listen(settings.host, settings.port)
        host, port = settings.host.strip("[]"), self._socket.getsockname()[1]
        everywhere = settings.host in ALL_INTERFACES
        shown = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
        names = () if is_loopback(host) else (socket.gethostname().lower(), socket.getfqdn().lower())
        access = Access(secrets.token_urlsafe(32), host, frozenset(names), settings.read_only)
        scheme = "https" if settings.tls_cert else "http"
        self.address = f"{scheme}://{shown}:{port}/#token={access.token}"
        about = {"read_only": settings.read_only, "version": rhino_version()}
        self.watcher = Watcher(settings.manager, settings.interval_s, about)
        actions = Actions(settings.manager, audit, f"uid:{os.getuid()}")
        app = make_app(self.watcher, actions, lambda: self.server.should_exit)
        self.server = uvicorn.Server(
            uvicorn.Config(
                Guard(app, access, audit),
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                http="h11",
                ws="none",
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=END_S,
            )
        )

    def run(self) -> None:
        """Serves until Ctrl-C or SIGTERM; in another thread than the main one until `server.should_exit` is set."""
        self.watcher.start()
        try:
            self.server.run(sockets=[self._socket])
        finally:
            self.watcher.stop()


def open_in_browser(address: str, use: Callable[[], None]) -> None:
    """Opens the page by a file of this user: all users see the command line of a browser. Removes it after `use`."""
    with tempfile.TemporaryDirectory(prefix="rhino-ui-") as folder:
        file = Path(folder) / "page.html"
        file.write_text(f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">\n')
        webbrowser.open(file.as_uri())
        use()


def _listen(host: str, port: int) -> socket.socket:
    bare = host.strip("[]")
    try:
        return socket.create_server((bare, port), family=socket.AF_INET6 if ":" in bare else socket.AF_INET)
    except OSError as error:
        raise UnavailableError(f"--host {host} --port {port}: {error.strerror or error}; choose another one") from error


def _check_tls(settings: PageSettings) -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidSettingError("--tls-cert and --tls-key: give both, or none of them")
    if settings.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as error:  # also of files that do not fit each other
            given = f"--tls-cert {settings.tls_cert} --tls-key {settings.tls_key}"
            raise InvalidSettingError(f"{given}: {error}; give a PEM certificate and its key") from error
