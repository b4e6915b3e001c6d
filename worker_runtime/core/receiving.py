"""Files that come down a chain: taken, acknowledged and passed on, or refused (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from rhino.errors import LocalProtocolError
from worker_runtime.core import events as ev
from worker_runtime.core.completing import Completing
from worker_runtime.core.membership import life
from worker_runtime.core.outbox import key_of
from worker_runtime.core.upstreams import refusal


class Receiving(Completing):
    """The part of the chain machine that is downstream of others."""

    def _begin(self, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        key, gid = key_of(event.entry), event.entry.store.group
        if event.epoch < self.epoch(gid):
            return [ev.DiscardTransfer(event.transfer), self._stale(event)]
        effects = self._see_epoch(gid, event.epoch)
        if effects:
            effects.append(ev.AskForGroup(gid))
        here = self._catalogue.get(*key)
        if here is None:
            self._transfers[event.transfer] = event
            return [*effects, ev.ReceiveFile(event.transfer, event.entry)]
        effects.append(ev.DiscardTransfer(event.transfer))
        if (here.crc32c, here.size_bytes) != (event.entry.crc32c, event.entry.size_bytes):
            return [*effects, self._refusal(event, ev.Refusal.NAME_CONFLICT, f"crc32c {here.crc32c:08x} is here")]
        return effects + self._take(event, now)

    def _transfer_stored(self, event: ev.TransferStored, now: float) -> list[ev.Effect]:
        begin = self._transfers.pop(event.transfer, None)
        if begin is None:
            raise LocalProtocolError(f"transfer {event.transfer} was not accepted")
        effects = self._arrived(begin.entry, now)
        # The epoch has moved while bytes came in: the file stays, but the sender must learn the new membership.
        if begin.epoch < self.epoch(begin.entry.store.group):
            return [*effects, self._stale(begin)]
        return effects + self._take(begin, now)

    def _transfer_failed(self, event: ev.TransferFailed, now: float) -> list[ev.Effect]:
        begin = self._transfers.pop(event.transfer, None)
        if begin is None or event.reason is None:
            return []
        return [self._refusal(begin, event.reason, event.message)]

    def _take(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin is here: acknowledge the own copy at once, then forward."""
        key = key_of(begin.entry)
        holds = self._holds(begin.entry)
        self._upstreams.note(begin)
        effects = self._upstreams.tell(key, self._me, holds=holds, epoch=begin.epoch)
        if not holds:
            self._unheld.setdefault(key.store, set()).add(key.name)
            if state := self._groups.get(key.store.group):
                state.plan_repair(self._me, now)
                self._groups_moved = True
        chain = tuple(w for w in begin.chain if w.worker_id != self._me.worker_id)
        out = self._outbox.get(key)
        if out is not None and out.epoch == begin.epoch:
            for worker in (w for w in chain if life(w) in out.held):
                effects += self._upstreams.tell(key, worker, holds=True, epoch=begin.epoch)
            effects += self._outbox.extend(out, chain, self._upstreams.of(key))
        elif chain:
            effects += self._outbox.offer(begin.entry, begin.epoch, chain)
        self._forget_upstreams(key)
        return effects

    def _stale(self, begin: ev.BeginReceived) -> ev.SendRefusal:
        return self._refusal(begin, ev.Refusal.STALE_EPOCH, f"epoch {begin.epoch} is old")

    def _refusal(self, begin: ev.BeginReceived, reason: ev.Refusal, message: str) -> ev.SendRefusal:
        key = key_of(begin.entry)
        return refusal(begin.upstream, key, reason, self.epoch(key.store.group), message, self._me)
