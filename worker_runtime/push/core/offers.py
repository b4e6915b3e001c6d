"""The queue of offers of a push link."""

from __future__ import annotations

from collections import OrderedDict

from rhino_core.ids import GroupId, StoreId
from worker_runtime.protocol import events as ev

Key = tuple[StoreId, str]


class OfferQueue:
    """Offers by group, in order of arrival. Groups take turns."""

    def __init__(self) -> None:
        self._groups: OrderedDict[GroupId, OrderedDict[Key, ev.OfferFile]] = OrderedDict()

    def put(self, offer: ev.OfferFile) -> None:
        """Queue an offer. A newer offer of the same file replaces the older one in place."""
        self._groups.setdefault(offer.entry.store.group, OrderedDict())[offer.entry.store, offer.entry.name] = offer

    def discard(self, key: Key) -> None:
        offers = self._groups.get(key[0].group)
        if offers is not None:
            offers.pop(key, None)
            if not offers:
                del self._groups[key[0].group]

    def pop(self, without: set[GroupId]) -> ev.OfferFile | None:
        """The oldest offer of the next group. Skips the groups in `without`: they are being served."""
        for group in self._groups:
            if group not in without:
                offers = self._groups[group]
                _, offer = offers.popitem(last=False)
                self._groups.move_to_end(group)
                if not offers:
                    del self._groups[group]
                return offer
        return None

    def __len__(self) -> int:
        """Number of groups with offers."""
        return len(self._groups)
