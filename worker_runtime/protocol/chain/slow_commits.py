"""Helps commits that have waited for a while, and ends those that wait in vain."""

from __future__ import annotations

from rhino_core.ids import GroupId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import GIVE_UP_S, Commit, Commits
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import LARGE_BYTES, Outbox
from worker_runtime.protocol.chain.sending import Sending
from worker_runtime.protocol.keys import key_of


class SlowCommits:
    """Looks at the commits whenever time has passed."""

    def __init__(self, me: Worker, groups: Groups, outbox: Outbox, commits: Commits, sending: Sending) -> None:
        self._me = me
        self._groups = groups
        self._outbox = outbox
        self._commits = commits
        self._sending = sending

    def tick(self, now: float) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        for commit, closure_due in self._commits.slow(now):
            effects += self._help(commit, now, closure_due=closure_due)
        late, unawaited = self._commits.due(now)
        for commit in late:
            group, out = self._groups.get(commit.entry.store.group), self._outbox.get(key_of(commit.entry))
            left = self._outbox.left(commit.entry.store)
            effects.append(commit.timed_out(group, out.holders() if out else (), left))
            if not self._sending.references_under_way(commit.entry):
                effects += self._sending.push_closure(commit.entry)
        return effects + [effect for key in unawaited for effect in self._sending.give_up(key)]

    def abandon(self, request: int) -> list[ev.Effect]:
        """This caller no longer waits."""
        return [effect for key in self._commits.abandon(request) for effect in self._sending.give_up(key)]

    def _help(self, commit: Commit, now: float, *, closure_due: bool) -> list[ev.Effect]:
        """A commit has waited for another second: try other members, perhaps quicker than the first of the chain."""
        store, mine = commit.entry.store, key_of(commit.entry)
        uncounted = self._is_uncounted(store.group)
        if uncounted and self._waits_in_vain(commit, now):
            return self._give_up(commit)
        # The version needs the store's other files, too.
        keys = [mine, *(key for key in self._outbox.of_store(store) if key != mine)]
        pushed = [out for key in keys if (out := self._outbox.get(key)) is not None]
        effects = [effect for out in pushed for effect in self._outbox.bypass(out, now)]
        if closure_due and not self._sending.references_under_way(commit.entry):
            effects += self._sending.push_closure(commit.entry)
            closure_due = False
        if closure_due or uncounted or any(len(out.chain) > 1 for out in pushed):
            self._commits.check_again(commit, now, closure_due=closure_due)
        return effects

    def _is_uncounted(self, group: GroupId) -> bool:
        """Whether this worker is a member but does not count as whole, in a group of another owner."""
        known = self._groups.get(group)
        mine = known.member(self._me.worker_id) if known is not None else None
        return known is not None and mine is not None and not mine.whole and known.owner.worker_id != self._me.worker_id

    def _waits_in_vain(self, commit: Commit, now: float) -> bool:
        out = self._outbox.get(key_of(commit.entry))
        late = now - commit.since >= GIVE_UP_S and commit.entry.size_bytes <= LARGE_BYTES
        return late and out is not None and not out.stored_anywhere()

    def _give_up(self, commit: Commit) -> list[ev.Effect]:
        """Fail the commit now.

        The task may continue elsewhere at once; here it would occupy its slot until the deadline.
        """
        group = self._groups.get(commit.entry.store.group)
        assert group is not None
        return [commit.given_up(group, self._me), *self.abandon(commit.request)]
