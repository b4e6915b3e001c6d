"""Networks for a local cluster: the loopback, or network namespaces with limits and cuts of their links."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

from rhino.testing.process import ClusterError

_BURST_BYTES = 256 * 1024
_made = itertools.count()


class Network(Protocol):
    """The network of a cluster's processes."""

    @property
    def center(self) -> str:
        """Address of master, manager and driver."""
        ...

    def host(self, index: int) -> str:
        """Address of worker `index`, a host of its own for Spark's scheduler."""
        ...

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        """Wraps `command` so that it runs on worker `index`."""
        ...


class Loopback:
    """Worker i is 127.0.0.<11+i>. There are no limits."""

    center = "127.0.0.1"

    def host(self, index: int) -> str:
        return f"127.0.0.{11 + index}"

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        return list(command)


class Namespaces:
    """Context manager: one network namespace per worker, each behind a link of `bits_per_s` in each direction.

    Requires root and iproute2 (`ip`, `tc`). ClusterError contains the failed command. Namespaces share Unix sockets and
    files with the machine. The center has no limit of its own: it is reached over the workers' links.
    """

    def __init__(self, workers: int, bits_per_s: int = 0) -> None:
        """`bits_per_s` = 0 means no limit."""
        self._workers = workers
        self._bits_per_s = bits_per_s
        number = os.getpid() + 4096 * next(_made)
        self._name = f"rh{number % 1_000_000}"  # the name of a link has at most 15 characters
        self._net = f"10.{100 + number // 256 % 100}.{number % 256}"

    @property
    def center(self) -> str:
        return f"{self._net}.1"

    def host(self, index: int) -> str:
        return f"{self._net}.{11 + index}"

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        return [*self._inside(index), *command]

    def cut(self, index: int) -> int:
        """Drops packets to and from the worker silently from now on. Returns the wall clock (ms) before the cut.

        The link address stays known to all others. Otherwise they would learn of the silent address after some seconds.
        A lost host behind a switch or a router does not show it.
        """
        places = (
            (self.center, (), self._name),
            *((self.host(i), self._inside(i), "eth0") for i in range(self._workers)),
        )
        links = {
            host: _run(*inside, "cat", f"/sys/class/net/{device}/address").strip() for host, inside, device in places
        }
        cut = self.host(index)
        for host, inside, device in places:
            for other in set(links) - {cut} if host == cut else {cut}:
                known = ("lladdr", links[other], "dev", device, "nud", "permanent")
                _run(*inside, "ip", "neighbour", "replace", other, *known)
        at_ms = time.time_ns() // 1_000_000
        _run("ip", "link", "set", f"{self._name}-{index}", "down")
        return at_ms

    def cut_towards(self, index: int, other: int, ports: Iterable[int]) -> None:
        """Drops packets from worker `index` to these ports of worker `other` silently from now on.

        A route sends them to a missing link address.
        """
        inside, nobody = self._inside(index), f"{self._net}.254"
        known = ("lladdr", "02:00:00:00:00:fe", "dev", "eth0", "nud", "permanent")
        _run(*inside, "ip", "neighbour", "replace", nobody, *known)
        _run(*inside, "ip", "route", "replace", "default", "via", nobody, "dev", "eth0", "table", "100")
        for port in ports:
            chosen = ("to", f"{self.host(other)}/32", "ipproto", "tcp", "dport", str(port))
            _run(*inside, "ip", "rule", "add", *chosen, "lookup", "100")

    def listening(self, index: int, pid: int) -> list[int]:
        """Returns the TCP ports on which a process of the worker listens."""
        lines = _run(*self._inside(index), "ss", "-H", "-l", "-t", "-n", "-p").splitlines()
        return [int(line.split()[3].rpartition(":")[2]) for line in lines if f"pid={pid}," in line]

    def __enter__(self) -> Self:
        try:
            _run("ip", "link", "add", self._name, "type", "bridge")
            _run("ip", "address", "add", f"{self.center}/24", "dev", self._name)
            _run("ip", "link", "set", self._name, "up")
            for index in range(self._workers):
                self._add(index)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def _inside(self, index: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", f"{self._name}-{index}")

    def _add(self, index: int) -> None:
        name = f"{self._name}-{index}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", name, "master", self._name, "up")
        inside = self._inside(index)
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "ip", "address", "add", f"{self.host(index)}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        if self._bits_per_s:
            limit = ("root", "tbf", "rate", f"{self._bits_per_s}bit", "burst", str(_BURST_BYTES), "latency", "50ms")
            _run("tc", "qdisc", "add", "dev", name, *limit)
            _run(*inside, "tc", "qdisc", "add", "dev", "eth0", *limit)

    def _remove(self) -> None:
        """Removes the existing parts. The kernel removes a namespace with its last process."""
        for index in range(self._workers):
            subprocess.run(["ip", "netns", "delete", f"{self._name}-{index}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self._name], capture_output=True, check=False)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed: network namespaces need iproute2") from error
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed (network namespaces need root): {done.stderr.strip()}")
    return done.stdout
