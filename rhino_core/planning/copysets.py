"""Sets of workers that hold copies together, so that few combinations of lost workers lose state.

Cidon et al., *Copysets: Reducing the Frequency of Data Loss in Cloud Storage*, USENIX ATC 2013: state is lost if all
workers of one set are lost at once. Random placement makes nearly every combination of workers such a set. Here the
sets grow with the groups, as in *Tiered Replication* (Cidon et al., USENIX ATC 2015): no set changes because another
worker comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

Copyset = frozenset[str]


class Copysets:
    """The sets in use, by the groups on them. The cost of an event is that of its changes."""

    def __init__(self) -> None:
        self._uses: dict[Copyset, int] = {}
        self._of_worker: dict[str, dict[Copyset, None]] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._uses)

    def add(self, workers: Collection[str]) -> None:
        """A group is on these workers."""
        found = frozenset(workers)
        if found not in self._uses:
            for worker in found:
                self._of_worker.setdefault(worker, {})[found] = None
        self._uses[found] = self._uses.get(found, 0) + 1

    def remove(self, workers: Collection[str]) -> None:
        """The group is no longer on these workers. Raises KeyError if no group was."""
        found = frozenset(workers)
        self._uses[found] -= 1
        if self._uses[found]:
            return
        del self._uses[found]
        for worker in found:
            del self._of_worker[worker][found]
            if not self._of_worker[worker]:
                del self._of_worker[worker]

    def of(self, worker: str) -> Iterable[Copyset]:
        """The sets of the worker, the oldest first."""
        return self._of_worker.get(worker, ())

    def partners(self, worker: str) -> set[str]:
        """Workers in a set with this one."""
        return {other for found in self.of(worker) for other in found} - {worker}


class Sets:
    """Ranks workers by how well they complete a set of `size` workers, with some chosen already. For one choice.

    A worker has `most` sets, or a few more if zones, hosts or losses require them. `usable`: whether a worker may be
    chosen; sets with others do not count.
    """

    def __init__(self, copysets: Copysets, size: int, most: int, usable: Callable[[str], bool]) -> None:
        self._copysets, self._size, self._most, self._usable = copysets, size, most, usable
        self._chosen: list[str] = []
        self._completing: set[str] = set()
        self._met: set[str] = set()
        self._grows = True

    def choose(self, *workers: str) -> None:
        """Adds these workers to the incomplete set. The first one of all is its owner."""
        self._chosen += workers
        self._met.update(*map(self._copysets.partners, workers))
        if not self._chosen:
            return
        chosen = frozenset(self._chosen)
        live = [found for found in self._copysets.of(self._chosen[0]) if self._is_live(found, chosen)]
        self._grows = len(self._chosen) == 1 and len(live) < self._most
        self._completing = {other for found in live if chosen <= found for other in found} - chosen

    def rank(self, worker: str) -> int:
        """0 for the best workers to complete a set. Less is better.

        While the owner has few sets, these are workers with few sets and none in common with the chosen ones. Later
        they are the workers with a set in common with the chosen ones.
        """
        if not self._grows and self._completing:
            return 0 if worker in self._completing else 3
        if sum(1 for _ in self._copysets.of(worker)) >= self._most:
            return 2
        return 1 if worker in self._met else 0

    def _is_live(self, found: Copyset, chosen: Copyset) -> bool:
        return len(found) == self._size and all(other in chosen or self._usable(other) for other in found)


def sets_of_a_worker(width: int, size: int) -> int:
    """How many sets of `size` workers a worker is in, if its copies are spread over about `width` others."""
    return max(1, -(-width // (size - 1)))
