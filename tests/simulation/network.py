"""The network of a simulated cluster: who reaches whom, in which direction, and the open push streams.

Links are TCP: a lost packet is a delay, and a direction that is cut holds everything back until it heals or until
keepalive breaks the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino_core.ids import Lane
from tests.simulation.manager import MANAGER
from tests.simulation.streams import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

KEEPALIVE_S = 1.0


class Network:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._streams: dict[tuple[str, str, Lane], Stream] = {}
        self._cut: set[tuple[str, str]] = set()  # directions, from and to

    def passes(self, from_: str, to: str) -> bool:
        return (from_, to) not in self._cut

    def connected(self, one: str, other: str) -> bool:
        """In both directions."""
        return self.passes(one, other) and self.passes(other, one)

    def reach(self, caller: str, name: str) -> Sidecar | None:
        """For a call of one sidecar to another that only reads; None when it fails."""
        other = self._cluster.sidecars.get(name)
        if other is None or not other.up or not self.connected(caller, name):
            return None
        return None if self._world.chance(self._world.faults.lose_call) else other

    # ------------------------------------------------------------ partitions

    def cut(self, from_: str, to: str) -> None:
        """Nothing passes in this direction any more."""
        self._world.say(f"nothing passes from {from_} to {to}")
        self._cut.add((from_, to))
        for stream in self._between(from_, to):
            stream.hold_back(from_)
            self._world.after(KEEPALIVE_S, stream.close_if_held_back)
        if MANAGER in (from_, to):
            sidecar = self._cluster.sidecars[from_ if to == MANAGER else to]
            self._world.after(KEEPALIVE_S, lambda: self._end_watch(sidecar))

    def _end_watch(self, sidecar: Sidecar) -> None:
        if not self.connected(sidecar.name, MANAGER):
            self._cluster.manager.unwatched_by(sidecar)

    def heal(self, from_: str, to: str) -> None:
        if self.passes(from_, to):
            return
        self._cut.discard((from_, to))
        self._world.say(f"{from_} reaches {to} again")
        for stream in self._between(from_, to):
            stream.let_go(from_)
        if MANAGER in (from_, to) and self.connected(from_, to):
            sidecar = self._cluster.sidecars[from_ if to == MANAGER else to]
            if sidecar.up:
                sidecar.register()

    def heal_all(self) -> None:
        for from_, to in sorted(self._cut):
            self.heal(from_, to)

    # ------------------------------------------------------------ streams

    def stream(self, sender: str, receiver: str, lane: Lane) -> Stream | None:
        found = self._streams.get((sender, receiver, lane))
        return found if found is not None and found.open else None

    def streams(self) -> list[Stream]:
        """Open ones, in a stable order."""
        return [stream for stream in self._streams.values() if stream.open]

    def open_stream(self, sender: str, receiver: str, lane: Lane) -> bool:
        other = self._cluster.sidecars.get(receiver)
        if other is None or not other.up or not self.connected(sender, receiver):
            return False
        self._streams[sender, receiver, lane] = Stream(self._cluster.sidecars[sender], other, lane)
        return True

    def break_streams(self, name: str) -> None:
        """Everything to and from a worker that has just died."""
        for stream in self.streams():
            if name in stream.ends:
                stream.close()

    def _between(self, one: str, other: str) -> list[Stream]:
        return [stream for stream in self.streams() if set(stream.ends) == {one, other}]
