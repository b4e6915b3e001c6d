"""One seed: some days of an archive with faults, and then some without."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import multiprocessing
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch

from handover_manager.archive import archiver, machine
from handover_manager.archive import events as ev
from rhino_archive.claims import claim
from rhino_archive.packs import Packer
from rhino_core.errors import AccessDeniedError, NoSpaceError, RhinoError, UnavailableError
from tests.simulation.archive.cluster import Cluster
from tests.simulation.archive.loop import VirtualLoop
from tests.simulation.archive.query import JOB
from tests.simulation.archive.store import Client, Store, Stored
from tests.simulation.archive.watch import InvariantWatch
from tests.simulation.archive.world import DAY_S, HOUR_S, MINUTE_S, Faults, World
from tests.simulation.seeds import Outcome, end_with_parent
from worker_runtime.archiving import uploading

CHAOS_S = 3 * DAY_S
CALM_S = 2 * HOUR_S  # until the newest batch is in the archive
PEACE_S = 1.5 * DAY_S  # until packs without a name are gone
PACK_BYTES = 900
KEEP_S = HOUR_S  # between two sweeps
STEP_S_MAX = 5 * HOUR_S  # of the store's clock, forward: what is left of a day after the longest upload
KEEPS = ("newest=1", "newest=2,hourly=3", "newest=3,hourly=24,daily=7")
OUTAGES: tuple[type[RhinoError], ...] = (UnavailableError, AccessDeniedError, NoSpaceError)


def run(seed: int) -> Outcome:
    """`Outcome.error`: the invariant that did not hold."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, _without_logs():
        world = runner.run(_played(seed))
    return Outcome(AssertionError(world.errors[0]) if world.errors else None, world.trace)


async def _played(seed: int) -> World:
    world = World(seed)
    play = _Play(world)
    with _scaled(world, play.client):
        await play.chaos()
        await play.peace()
        for cluster in play.clusters.values():
            for manager in cluster.managers:
                manager.kill()
        await asyncio.sleep(2 * MINUTE_S)
    return world


class _Play:
    """`varied`: faults that only some seeds have."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._store = Store(world)
        self.client = Client(world, self._store)  # of the sidecars
        self._keep = self._random.choice(KEEPS)
        self.clusters = {"a": Cluster(world, self._store, "a", self._keep)}
        self._queries = {name: cluster.query for name, cluster in self.clusters.items()}
        self._watch = InvariantWatch(world, self._store, self._queries)
        self._stepped_s = 0.0  # forward
        actions: dict[Callable[[Cluster], object], float] = {
            Cluster.log_batch: 10.0,
            self._move: 2.0,
            self._lose: 0.7,
            self._stop: 1.0,
            self._rewind: 0.5,
            self._wanted: 0.5,
            Cluster.end_query: 0.3,
            self._restart_manager: 0.7,
        }
        varied: dict[Callable[[Cluster], object], float] = {
            self._second_manager: 1.0,
            self._hang: 1.0,
            self._outage: 0.5,
            self._slow: 1.0,
            self._step: 0.5,
            self._damage: 0.3,
            self._other_cluster: 0.5,
            self._rest: 0.5,
        }
        self._actions = actions | {do: weight for do, weight in varied.items() if world.chance(0.5)}

    async def chaos(self) -> None:
        pause_s = self._random.choice([20 * MINUTE_S, HOUR_S, 2 * HOUR_S])
        while self._world.now < CHAOS_S and not self._world.errors:
            await asyncio.sleep(self._random.expovariate(1 / pause_s))
            (act,) = self._random.choices(list(self._actions), list(self._actions.values()))
            cluster = self._random.choice(list(self.clusters.values()))
            found = act(cluster)
            if asyncio.iscoroutine(found):
                await found

    async def peace(self) -> None:
        """Without faults, the newest batch comes into the archive, and packs without a name go."""
        world = self._world
        world.faults, self._store.outage = Faults.none(), None
        for cluster in self.clusters.values():
            cluster.mend()
        await asyncio.sleep(HOUR_S)  # for what has been begun before
        holder = self.clusters[self._watch.holder or "a"]
        for cluster in self.clusters.values():
            if cluster is not holder:
                for manager in list(cluster.managers):
                    cluster.kill_manager(manager)
        if world.errors:
            return
        holder.log_batch()
        await asyncio.sleep(CALM_S)
        self._watch.check_archived(holder.name)
        # Nobody knows the packs of a damaged manifest, so nothing is deleted.
        since, sound = world.now, not self._watch.damaged
        while world.now < since + PEACE_S and not world.errors:
            await asyncio.sleep(6 * HOUR_S)
            holder.log_batch()
        await asyncio.sleep(CALM_S)
        self._watch.check_archived(holder.name)
        if sound:
            self._watch.check_swept()

    # ---------------------------------------------------------------- actions

    def _move(self, cluster: Cluster) -> None:
        cluster.move(self._random.choice(cluster.query.groups))

    def _lose(self, cluster: Cluster) -> None:
        cluster.lose(self._random.choice(list(cluster.sidecars)))

    def _stop(self, cluster: Cluster) -> None:
        cluster.stop(self._random.choice(list(cluster.sidecars)))

    def _rewind(self, cluster: Cluster) -> None:
        if cluster.query.rewind(self._random.choice([1, 2])):
            self._world.say(f"{cluster.name} rewinds to batch {len(cluster.query.log) - 1}")
            for _ in range(self._random.randrange(3)):
                cluster.log_batch()

    def _wanted(self, cluster: Cluster) -> None:
        for manager in cluster.managers:
            manager.hear(ev.ArchiveWanted(JOB))

    def _restart_manager(self, cluster: Cluster) -> None:
        cluster.kill_manager(self._random.choice(cluster.managers))
        cluster.start_manager()

    def _second_manager(self, cluster: Cluster) -> None:
        if len(cluster.managers) < 2:
            cluster.start_manager()
        else:
            cluster.kill_manager(self._random.choice(cluster.managers))

    def _hang(self, cluster: Cluster) -> None:
        for_s = self._random.choice([MINUTE_S, HOUR_S, 5 * HOUR_S, 15 * HOUR_S])
        self._world.say(f"{cluster.name}: a manager hangs for {for_s:.0f} s")
        self._random.choice(cluster.managers).hang(for_s)

    def _outage(self, cluster: Cluster) -> None:
        self._store.outage = self._random.choice(OUTAGES)
        self._world.loop.call_later(self._random.expovariate(1 / HOUR_S), setattr, self._store, "outage", None)

    def _slow(self, cluster: Cluster) -> None:
        """A pack waits up to 12 hours for its bandwidth."""
        name = self._random.choice(list(cluster.sidecars))
        cluster.sidecars[name].pack_s = self._random.choice([0.0, 10 * MINUTE_S, 2 * HOUR_S, 8 * HOUR_S])

    def _step(self, cluster: Cluster) -> None:
        """The store's clock: any time back, and forward to STEP_S_MAX."""
        step_s = self._random.choice([-2 * DAY_S, -HOUR_S, HOUR_S, 3 * HOUR_S])
        if step_s > 0:
            self._stepped_s += step_s
            if self._stepped_s > STEP_S_MAX:
                return
        else:
            self._watch.clock_went_back = True
        self._world.say(f"the clock of the store steps by {step_s:.0f} s")
        self._store.clock_off += timedelta(seconds=step_s)

    def _damage(self, cluster: Cluster) -> None:
        name = self._watch.newest
        if name in self._store.objects and name not in self._watch.damaged:
            stored = self._store.objects[name]
            self._store.objects[name] = Stored(stored.data[:-1] + b"?", stored.changed, stored.listed_at)
            self._watch.damaged.add(name)
            self._world.say(f"{name} is damaged")

    async def _other_cluster(self, cluster: Cluster) -> None:
        """The same query begins in another cluster; later it takes the archive over, and back."""
        if "z" not in self.clusters:
            self.clusters["z"] = Cluster(self._world, self._store, "z", self._keep)
            self._queries["z"] = self.clusters["z"].query
        elif self._watch.holder:
            with contextlib.suppress(RhinoError):
                await claim(Client(self._world, self._store, cluster.name), JOB, cluster.name, force=True)

    async def _rest(self, cluster: Cluster) -> None:
        """Nothing is logged for a day or two."""
        await asyncio.sleep(self._random.choice([DAY_S, 1.5 * DAY_S]))


@contextlib.contextmanager
def _scaled(world: World, client: Client) -> Iterator[None]:
    """The real parts, with small packs, longer pauses, and calls to the model."""
    with contextlib.ExitStack() as stack:
        for patched in (
            patch.object(archiver, "KEEP_EVERY_S", KEEP_S),
            patch.object(archiver, "worker_channel", lambda worker, transport: transport.channel(worker)),
            patch.object(archiver, "peer_pb2_grpc", SimpleNamespace(PeerStub=lambda channel: channel)),
            patch.object(machine, "RETRY_S_MAX", 15 * MINUTE_S),
            patch.object(uploading, "SIGN_S", 50.0),
            patch.object(uploading, "bucket", lambda url: client),
            patch.object(uploading, "read_pieces", lambda content, size_bytes: content.pieces(size_bytes)),
            patch.object(uploading, "Packer", functools.partial(Packer, PACK_BYTES, world.random.randbytes)),
        ):
            stack.enter_context(patched)
        yield


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def failures(seeds: range, *, jobs: int) -> Iterator[tuple[int, str] | None]:
    """The failure of each seed or None, as they end."""
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=end_with_parent) as pool:
        yield from pool.imap_unordered(_attempt, seeds, chunksize=4)


def _attempt(seed: int) -> tuple[int, str] | None:
    error = run(seed).error
    return None if error is None else (seed, str(error))
