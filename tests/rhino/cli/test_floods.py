"""Strangers who connect again and again to a daemon with certificates: its log does not grow."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from rhino_core.security.sources import new_cluster_key
from tests import forked

TIMES = 40


def refused(address: tuple[str, int], *, encrypted: bool) -> None:
    with socket.create_connection(address, timeout=10) as plain:
        try:
            if not encrypted:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                plain.recv(100)
                return
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(plain) as wrapped:
                wrapped.send(b"x")
                assert wrapped.recv(100) == b""
        except (OSError, ssl.SSLError):
            return


@pytest.mark.timeout(120)
def test_refused_handshakes_have_no_lines(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    options = ("--bootstrap", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with forked.daemon("manager", *options, "--cluster-key", str(key), log=tmp_path / "log") as ready:
        host, _, port = ready["address"].partition(":")
        before = len((tmp_path / "log").read_text().splitlines())
        for encrypted in (False, True):
            for _ in range(TIMES):
                refused((host, int(port)), encrypted=encrypted)
    lines = (tmp_path / "log").read_text().splitlines()[before:]
    assert len(lines) < TIMES / 4, lines[:5]
