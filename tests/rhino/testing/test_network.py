"""Namespaces of a local cluster: own addresses, links as fast as asked for, and cut without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from rhino.testing.network import Namespaces
from rhino.testing.process import ClusterError

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
    reason="network namespaces need root and iproute2",
)
BYTES = 1_000_000
BITS_PER_S = 8_000_000
SEND = f"""
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, peer = server.accept()
    connection.sendall(peer[0].encode().ljust(20) + bytes({BYTES}))
    connection.close()
"""
RECEIVE = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
received = b"".join(iter(lambda: connection.recv(65536), b""))
print(received[:20].decode().strip(), len(received))
"""


def test_links_are_limited_and_can_be_cut() -> None:
    with Namespaces(2, BITS_PER_S) as network:
        command = [sys.executable, "-c", SEND, network.center]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = server.stdout.readline().strip()

            def receive(index: int) -> subprocess.CompletedProcess[str]:
                inside = network.command(index, [sys.executable, "-c", RECEIVE, network.center, port])
                return subprocess.run(inside, capture_output=True, text=True, check=False)

            try:
                started = time.monotonic()
                done = receive(0)
                took_s = time.monotonic() - started
                assert done.stdout.split() == [network.host(0), str(BYTES + 20)], done.stderr
                assert took_s > 0.5, "a megabyte takes a second at 8 Mbit/s, less what a burst lets through"
                network.cut(1)
                assert "imed out" in receive(1).stderr
                assert receive(0).returncode == 0
            finally:
                server.kill()


def test_a_failed_start_leaves_nothing_and_spares_others() -> None:
    def there(network: Namespaces) -> bool:
        return not subprocess.run(["ip", "link", "show", network._name], capture_output=True, check=False).returncode

    failing = Namespaces(1, bits_per_s=-1)
    with Namespaces(1) as other:
        with pytest.raises(ClusterError, match=r"`tc qdisc .*` failed"):
            failing.__enter__()
        assert there(other)
    assert not there(failing)
    assert not there(other)


def test_one_direction_between_two_workers_can_be_cut() -> None:
    with Namespaces(3) as network:
        servers = [
            subprocess.Popen(
                network.command(index, [sys.executable, "-c", SEND, network.host(index)]),
                stdout=subprocess.PIPE,
                text=True,
            )
            for index in (0, 1)
        ]
        try:
            ports = [int(server.stdout.readline()) for server in servers if server.stdout is not None]
            assert [network.listening(index, servers[index].pid) for index in (0, 1)] == [[port] for port in ports]
            network.cut_towards(0, 1, [ports[1]])
            outcomes = [
                subprocess.run(
                    network.command(at, [sys.executable, "-c", RECEIVE, network.host(to), str(ports[to])]),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                for at, to in ((0, 1), (1, 0), (2, 1))
            ]
            assert "TimeoutError" in outcomes[0].stderr, "lost, not refused"
            assert [outcome.returncode for outcome in outcomes[1:]] == [0, 0]
        finally:
            for server in servers:
                server.kill()
                server.wait()
