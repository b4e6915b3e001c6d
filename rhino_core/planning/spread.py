"""Spread of workers over hosts, zones and racks: copies close together may be lost together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """The place of a worker. An empty zone or rack is unknown. Racks of different zones are different racks."""

    host: str
    zone: str = ""
    rack: str = ""


class Spread:
    """The places of some workers. An unknown zone may equal any other worker's zone, so a known other one is better."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._hosts: set[str] = set()
        self._zones: set[str] = set()
        self._racks: set[tuple[str, str]] = set()
        for place in places:
            self.add(place)

    def add(self, place: Place) -> None:
        self._hosts.add(place.host)
        self._zones.add(place.zone)
        self._racks.add((place.zone, place.rack))

    def rank(self, place: Place) -> int:
        """How close the place is to the added ones: by host, then by zone, then by rack. Less is better.

        Zone and rack count 0 in another one than all others, 1 if unknown, 2 in the same one as some other. A number,
        as each choice among 1000 workers asks for all of them.
        """
        zone = 1 if not place.zone else 2 if place.zone in self._zones else 0
        rack = 1 if not place.rack else 2 if (place.zone, place.rack) in self._racks else 0
        return (place.host in self._hosts) * 9 + zone * 3 + rack


def closest(places: Sequence[Place]) -> Sequence[int]:
    """For each place how close it is to all of the others, as `Spread.rank`."""
    return [Spread([*places[:i], *places[i + 1 :]]).rank(place) for i, place in enumerate(places)]
