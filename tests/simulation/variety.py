"""How the clusters of several seeds differ beside their faults: settings, stores, and what goes on in peace."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rhino_core.ids import BelowMinCopies, Durability, JobSettings, StoreId

JOB = "job"
FAMILIES = "families"  # a store of this name has column families: version 1 has a snapshot, which alone names them


@dataclass(frozen=True)
class Variety:
    """`stores`: those of the query. `breaks_in_peace`: probability that a connection breaks with a chunk, as they do
    without any fault. `moves_in_peace`: handovers while the last batches are written. `forgotten_query`: another
    query ends early and is forgotten. `few_executors`: on some workers only, so that tasks do not run by the map.
    `taken_back`: the query goes on from older versions now and then. `zones`: the workers are in two zones.
    `stopped_query`: another query ends early and stays. `journal_replaced`: the manager loses its journal, or gets an
    older copy of it."""

    settings: JobSettings
    stores: tuple[StoreId, ...] = (StoreId(JOB, 0, 0, "default"), StoreId(JOB, 1, 0, "default"))
    breaks_in_peace: float = 0.0
    forgotten_query: bool = False
    moves_in_peace: bool = False
    few_executors: bool = False
    taken_back: bool = False
    zones: bool = False
    stopped_query: bool = False
    journal_replaced: bool = False


def plain(factor: int) -> Variety:
    """Default settings, two operators of one stage."""
    return Variety(JobSettings(factor))


def drawn(seed: int, factor: int) -> Variety:
    """The variety of a seed, drawn from a source of its own."""
    random = Random(f"variety of seed {seed}")
    one_group, families = random.random() < 0.25, random.random() < 0.3
    first = FAMILIES if families else "default"
    return Variety(
        settings=_settings(random, factor),
        stores=(StoreId(JOB, 0, 0, first), StoreId(JOB, 0, 0, "right") if one_group else StoreId(JOB, 1, 0, "default")),
        breaks_in_peace=random.choice([0.0, 0.0, 0.01]),
        moves_in_peace=random.random() < 0.35,
        forgotten_query=random.random() < 0.2,
        few_executors=random.random() < 0.2,
        taken_back=random.random() < 0.3,
        zones=random.random() < 0.3,
        stopped_query=seed % 7 == 5 and random.random() < 0.7,
        journal_replaced=seed % 14 == 11,
    )  # the other seeds are as they were: some are known to find planted bugs (test_simulation.py, FINDS)


def _settings(random: Random, factor: int) -> JobSettings:
    copies = random.choice([None, None, None, random.randint(1, factor + 1)])
    below = BelowMinCopies.BLOCK if random.random() < 0.15 else BelowMinCopies.DEGRADED
    durability = Durability.SYNCED if random.random() < 0.15 else Durability.REPLICATED
    return JobSettings(factor, copies, below, durability)
