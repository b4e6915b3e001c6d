"""The managers of a local cluster: one with a journal of its own, or several with their journal on witnesses."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import closing, suppress

from rhino.testing import rhino_daemons
from rhino.testing.process import ClusterError, Process

Start = Callable[[int, str, bool], Process]


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment, and that Linux gives to nobody by itself, as it does from 32768 on.

    A standby listens later, and a killed sidecar again.
    """
    while True:
        port = random.randrange(20_000, 32_768)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind((host, port))
            return port


class Managers:
    """`start` starts manager number i at an address, with a new journal or not, and does not wait for it."""

    def __init__(self, host: str, count: int, start: Start) -> None:
        self._start = start
        self._listen = [f"{host}:0"] if count == 1 else [f"{host}:{free_port(host)}" for _ in range(count)]
        self._processes: list[Process] = []
        self._killed: int | None = None

    @property
    def address(self) -> str:
        """ "host:port", or several with commas between them."""
        return ",".join(self._listen)

    @property
    def several(self) -> bool:
        return len(self._listen) > 1

    @property
    def leader(self) -> Process:
        """The only one, or the one that leads. Raises ClusterError if none does."""
        if self._processes and not self.several:
            return self._processes[0]
        for process in self._processes:
            if process.running and rhino_daemons.announced(process, "manager"):
                return process
        raise ClusterError("no manager leads")

    def begin(self) -> None:
        """Starts all, with a new journal. A single one serves at the end; several need their witnesses first."""
        self._processes = [self._start(index, listen, index == 0) for index, listen in enumerate(self._listen)]
        if not self.several:
            self.wait()

    def wait(self) -> None:
        """Waits until the first manager serves."""
        address = rhino_daemons.wait_manager(self._processes[0])
        if not self.several:
            self._listen = [address]

    def kill(self) -> None:
        """kill -9 of the one that leads."""
        leader = self.leader
        self._killed = self._processes.index(leader)
        leader.kill()

    def restart(self) -> None:
        """Starts the killed one again, or kills and starts the one that leads. A single one serves at the end."""
        if self._killed is None:
            self.kill()
        assert self._killed is not None
        index, self._killed = self._killed, None
        self._processes[index] = self._start(index, self._listen[index], False)
        if not self.several:
            self.wait()

    def revive(self) -> None:
        """Starts those again that have ended by themselves, as systemd does: a leader without a majority ends."""
        for index, process in enumerate(self._processes):
            if self.several and index != self._killed and not process.running:
                self._processes[index] = self._start(index, self._listen[index], False)

    def may_have_ended(self, process: Process) -> bool:
        """Whether the process is a manager that was killed, or that does not lead any more, beside another one."""
        if process not in self._processes:
            return process.name.startswith("rhino-manager")  # it was replaced
        others = any(one.running for one in self._processes)
        return self._processes.index(process) == self._killed or (self.several and others)
