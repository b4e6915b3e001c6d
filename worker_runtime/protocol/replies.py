"""Handles the replies of members to pushed files: acknowledgements and refusals."""

from __future__ import annotations

from rhino_core.errors import AlreadyThereError
from rhino_core.ids import Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.commits import Commits
from worker_runtime.protocol.completing import Completing
from worker_runtime.protocol.groups import Groups
from worker_runtime.protocol.keys import FileKey, incarnation_of
from worker_runtime.protocol.outbox import Outbox
from worker_runtime.protocol.receiving import Receiving


class Replies:
    """Records what members reply, passes it on to the upstreams, and completes commits."""

    def __init__(
        self,
        me: Worker,
        groups: Groups,
        outbox: Outbox,
        commits: Commits,
        receiving: Receiving,
        completing: Completing,
    ) -> None:
        self._me = me
        self._groups = groups
        self._outbox = outbox
        self._commits = commits
        self._receiving = receiving
        self._completing = completing

    def ack(self, event: ev.AckReceived) -> list[ev.Effect]:
        if event.member.worker_id == self._me.worker_id:
            return []  # the ack has come full circle: each member reports its own copy itself
        key = FileKey(event.store, event.name)
        effects = self._receiving.relay(key, event.member, holds=event.holds, epoch=event.epoch)
        out = self._outbox.get(key)
        if out is None or out.epoch != event.epoch:
            return effects
        if out.received_again:  # the new first of the chain may still serve this member: it counts as a holder below
            out.acknowledged(event.member, holds=False)
            effects += self._outbox.break_forwarding_loop(out, self._receiving.upstreams(key))
        out.acknowledged(event.member, holds=event.holds)
        if event.holds:
            effects += self._completing.try_complete(key)
            self._completing.settle(key)
            if self._groups.policy(key.store.group).acks_complete_other_files:
                effects += self._completing.try_complete_all(key.store)
        return effects

    def refusal(self, event: ev.RefusalReceived, now: float) -> list[ev.Effect]:
        key = FileKey(event.store, event.name)
        out = self._outbox.get(key)
        if out is None:
            return []
        if event.reason is ev.Refusal.STALE_EPOCH:
            return [ev.AskForGroup(key.store.group)] if event.current_epoch > out.epoch else []
        if event.reason is ev.Refusal.NAME_CONFLICT:
            return self._conflict(key, event)
        out.refused(event.member.worker_id)
        self._outbox.retry_later(key, now)
        full = event.reason is ev.Refusal.STORAGE and incarnation_of(event.member) == incarnation_of(out.to)
        return self._outbox.bypass_full(out, now) if full else []

    def _conflict(self, key: FileKey, event: ev.RefusalReceived) -> list[ev.Effect]:
        """The file must never be sent again: fail the commits and inform the upstreams that wait for it."""
        error = AlreadyThereError(
            f"{key.store}/{key.name}: {event.member.worker_id} has this name with another checksum ({event.message})"
        )
        effects = self._outbox.drop(key)
        current = self._groups.epoch(key.store.group)
        effects += [ev.CompleteCommit(commit.request, 0, current, error) for commit in self._commits.pop(key)]
        return effects + self._receiving.refuse_and_forget(key, event.reason, event.message, event.member)
