"""The initial state of a manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rhino_core.ids import Epoch, ReplicaGroup, StoreVersion, Worker


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of the journal.

    `generation` is the journal's present one. `forgotten` has the fences of forgotten jobs, and `draining` the ids of
    workers. `fresh`: the journal is in its first lifetime.
    """

    generation: int
    workers: Collection[Worker] = ()
    groups: Collection[ReplicaGroup] = ()
    floors: Collection[StoreVersion] = ()
    forgotten: Mapping[str, Epoch] = field(default_factory=dict)
    draining: Collection[str] = ()
    fresh: bool = False
