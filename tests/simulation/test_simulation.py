"""Seeds of the simulated cluster, and the proof that its checkers bite: deliberate bugs that some seed must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from replication_manager.core import groups as rules
from tests.simulation import manager as manager_module
from tests.simulation.__main__ import failure
from tests.simulation.sidecar import Sidecar
from worker_runtime.core import closure
from worker_runtime.core import events as ev
from worker_runtime.core.chain import ChainMachine

SEEDS = 60
SEEDS_R2 = 15
SEEDS_FOR_A_BUG = 60


@pytest.mark.parametrize(("factor", "seeds"), [(1, SEEDS), (2, SEEDS_R2)])
def test_every_invariant_holds(factor: int, seeds: int) -> None:
    for seed in range(seeds):
        found = failure(seed, factor=factor)
        if found is not None:
            error, trace = found
            pytest.fail(f"seed {seed}, factor {factor}: {error}\n" + "\n".join(trace[-60:]))


def one_file_is_a_copy(patch: pytest.MonkeyPatch) -> None:
    """A member that has one file of a version says that it holds the version."""
    patch.setattr(ChainMachine, "_holds", lambda self, entry: True)


def snapshot_exposed_early(patch: pytest.MonkeyPatch) -> None:
    """A zip is shown although files that it names are not here."""

    def every_zip(self: closure.StoreCatalogue, name: str) -> Iterator[str]:
        return (f.entry.name for f in self.files() if f.entry.name.endswith(".zip"))

    patch.setattr(closure.StoreCatalogue, "whole_snapshots_with", every_zip)


def floor_ignores_closures(patch: pytest.MonkeyPatch) -> None:
    """Retention deletes by number only, also what the floor's own closure needs."""

    def below(catalogue: closure.StoreCatalogue, floor: Any, pins: Any = (), busy: Any = ()) -> tuple[str, ...]:
        return tuple(f.entry.name for f in catalogue.files() if f.version and f.version.version < floor.version)

    patch.setattr(closure, "collectable", below)


def epochs_issued_again(patch: pytest.MonkeyPatch) -> None:
    """A restarted manager begins in the generation of its former life."""
    start = manager_module.Manager.start

    def without_generation(self: manager_module.Manager) -> None:
        self.generation = 0
        start(self)

    patch.setattr(manager_module.Manager, "start", without_generation)


def whole_without_catching_up(patch: pytest.MonkeyPatch) -> None:
    """A new member calls itself whole and pulls nothing."""
    patch.setattr(Sidecar, "_pull", lambda self, group, other: None)


def too_few_copies(patch: pytest.MonkeyPatch) -> None:
    """A commit returns with the writer's copy alone."""
    patch.setattr(rules, "required_copies", lambda settings, members: 1)


def acknowledged_before_stored(patch: pytest.MonkeyPatch) -> None:
    """A receiver tells of a file that is not on its disk yet."""

    def write_late(self: Sidecar, transfer: int, entry: Any, upstream: str) -> None:
        self._catalogue.add(entry, self.world.now)
        self._later(0.5, lambda: self.store(entry))
        self.handle(ev.TransferStored(transfer))

    patch.setattr(Sidecar, "_write", write_late)


BUGS = [
    one_file_is_a_copy,
    snapshot_exposed_early,
    floor_ignores_closures,
    epochs_issued_again,
    whole_without_catching_up,
    too_few_copies,
    acknowledged_before_stored,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(SEEDS_FOR_A_BUG):
        if failure(seed) is not None:
            return
    pytest.fail(f"{bug.__name__}: {bug.__doc__} Not found by {SEEDS_FOR_A_BUG} seeds")
