"""Sets of workers that hold copies together, so that few combinations of lost workers lose state.

Cidon et al., *Copysets: Reducing the Frequency of Data Loss in Cloud Storage*, USENIX ATC 2013: state is lost if all
workers of one set are lost at once. Random placement makes nearly every combination of workers such a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rhino_core.errors import InvalidRequestError, TooFewWorkersError
from rhino_core.planning.model import Site

Copyset = tuple[str, ...]


@dataclass(slots=True)
class Scatter:
    """Copysets of `size` workers: an owner and its copies. Each worker is in `permutations` of them, or a few more.

    A worker's state is then spread over about `permutations` * (`size` - 1) others. More of them share its load when it
    is lost, and more combinations of lost workers lose state. Workers of a set are on different hosts, and in as many
    zones as there are, up to `size`. Equal workers give equal sets.
    """

    size: int
    permutations: int
    sets: list[Copyset] = field(default_factory=list)
    of_worker: dict[str, list[Copyset]] = field(default_factory=dict)

    def choose(self, owner: str, loads: dict[str, float], weight: float) -> Copyset:
        """The other workers of the owner's set whose fullest member has least, and adds `weight` to their `loads`.

        Raises TooFewWorkersError for a worker that is in no set.
        """
        sets = self.of_worker.get(owner)
        if not sets:
            raise TooFewWorkersError(f"worker {owner} is in no set of {self.size} workers: make the sets anew")
        best = min(sets, key=lambda found: max([loads.get(worker, 0.0) for worker in found if worker != owner]))
        others = tuple(worker for worker in best if worker != owner)
        for worker in others:
            loads[worker] = loads.get(worker, 0.0) + weight
        return others


def scatter(sites: Iterable[Site], size: int, permutations: int) -> Scatter:
    """Sets over the workers that take copies.

    Raises InvalidRequestError for sizes that make no sense, TooFewWorkersError if the hosts do not suffice for one set.
    """
    taking = sorted((site for site in sites if site.takes), key=lambda site: site.worker_id)
    hosts = {site.host or site.worker_id for site in taking}
    if size < 2 or permutations < 1:
        raise InvalidRequestError(f"sets of {size} in {permutations} permutations: use 2 or more workers, 1 or more")
    if len(hosts) < size:
        raise TooFewWorkersError(
            f"sets of {size} workers need {size} hosts, {len(hosts)} take copies: start sidecars on other hosts, or "
            "lower spark.rhino.replicationFactor"
        )
    made = Scatter(size, permutations)
    for number in range(permutations):
        for found in _permutation(taking, size, number):
            made.sets.append(found)
            for worker in found:
                made.of_worker.setdefault(worker, []).append(found)
    return made


def _permutation(sites: Sequence[Site], size: int, number: int) -> list[Copyset]:
    """Sets in which every worker is at least once, in an order that depends on the names and `number` only.

    Zones with the most workers left give first. If other zones have none left, workers that are in a set already help.
    """
    zones: dict[str, list[Site]] = {}
    for member in sorted(sites, key=lambda site: hashlib.blake2b(f"{number}/{site.worker_id}".encode()).digest()):
        zones.setdefault(member.zone, []).append(member)
    left = {zone: list(members) for zone, members in zones.items()}
    helping = dict.fromkeys(zones, 0)  # position of the next worker that helps
    found: list[Copyset] = []
    while any(left.values()):
        chosen: list[Site] = []
        for zone in sorted(left, key=lambda zone: (-len(left[zone]), zone)):
            if len(chosen) == size:
                break
            site = _take(left[zone], chosen)
            if site is None:
                site = _help(zones[zone], helping[zone], chosen)
                helping[zone] += 1
            if site is not None:
                chosen.append(site)
        _complete(chosen, left, zones, size)
        found.append(tuple(site.worker_id for site in chosen))
    return found


def _complete(chosen: list[Site], left: dict[str, list[Site]], zones: dict[str, list[Site]], size: int) -> None:
    """Adds workers of zones that are in the set already: there are fewer zones than `size`."""
    while len(chosen) < size:
        fullest = sorted(left, key=lambda zone: (-len(left[zone]), zone))
        site = next((found for zone in fullest if (found := _take(left[zone], chosen))), None)
        if site is None:
            site = next(found for zone in fullest if (found := _help(zones[zone], len(chosen), chosen)))
        chosen.append(site)


def _take(members: list[Site], chosen: Sequence[Site]) -> Site | None:
    """Takes the first worker on a host that is not in the set yet. None if there is none."""
    hosts = {site.host or site.worker_id for site in chosen}
    for position, site in enumerate(members):
        if (site.host or site.worker_id) not in hosts:
            return members.pop(position)
    return None


def _help(members: list[Site], start: int, chosen: Sequence[Site]) -> Site | None:
    """The first worker from `start` on, in a circle, on a host that is not in the set yet."""
    hosts = {site.host or site.worker_id for site in chosen}
    circle = (members[(start + offset) % len(members)] for offset in range(len(members)))
    return next((site for site in circle if (site.host or site.worker_id) not in hosts), None)
