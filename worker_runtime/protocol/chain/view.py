"""Read access to the chain machine for the rest of the sidecar."""

from __future__ import annotations

from collections.abc import Iterable, Set

from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreId, Version
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.lag import Lag, LagMeter
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.sending import Sending


class ChainView:
    """A read-only view of `ChainMachine`."""

    def __init__(self, groups: Groups, outbox: Outbox, sending: Sending) -> None:
        self._groups = groups
        self._outbox = outbox
        self._sending = sending
        self._lags = LagMeter()

    def group(self, group: GroupId) -> ReplicaGroup | None:
        """The group as last adopted."""
        return self._groups.get(group)

    def groups(self) -> Iterable[GroupId]:
        """The adopted groups."""
        return self._groups.ids()

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch named by the manager; NO_EPOCH for an unknown group."""
        return self._groups.epoch(group)

    def highest_epoch(self) -> Epoch:
        """The highest epoch over all groups and fences. The worker reports it at Register."""
        return self._groups.highest_epoch()

    def forgotten(self, group: GroupId) -> bool:
        """Whether the group's job has ended for good and the manager has not created the group again since."""
        return self._groups.forgotten(group)

    def whole(self, group: GroupId) -> bool:
        """Whether this worker has caught up since it adopted its current epoch."""
        return self._groups.whole(group)

    def lags(self, now: float) -> tuple[Lag, ...]:
        """How far the next workers in the chains are behind.

        Call this once per heartbeat: ages are measured from one call to the next.
        """
        return self._lags.measure(self._outbox.values(), now)

    def pending_bytes(self) -> int:
        """Bytes of files not stored by other members yet, counted once per member."""
        return self._outbox.pending_bytes()

    def given_up(self, store: StoreId) -> Set[str]:
        """Files here that nobody needs elsewhere: their commits have failed (`Sending.give_up`)."""
        return self._sending.given_up(store)

    def names_in_use(self, store: StoreId, floor: Version | None) -> set[str]:
        """Names in use by commits or pushes. They must not be collected (`Sending.names_in_use`)."""
        return self._sending.names_in_use(store, floor)
