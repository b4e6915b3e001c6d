"""Deliberate bugs, by patching the real cores: the watch must find each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from rhino_core.witnesses import contender
from rhino_core.witnesses import events as ev
from rhino_core.witnesses.acceptor import Acceptor, Effect, Reply, SaveFolded, SavePromise
from rhino_core.witnesses.contender import Contender
from rhino_core.witnesses.messages import ORIGIN, Append, Promise, Promised, Request

Patch = pytest.MonkeyPatch


def _with_effects(patch: Patch, change: Callable[[list[Effect]], list[Effect]]) -> None:
    original = Acceptor.handle

    def handle(self: Acceptor, event: Request, *, now: float) -> Sequence[Effect]:
        return change(list(original(self, event, now=now)))

    patch.setattr(Acceptor, "handle", handle)


def answer_before_the_sync(patch: Patch) -> None:
    """A witness acknowledges records before they are on its disk."""
    _with_effects(patch, lambda effects: sorted(effects, key=lambda effect: not isinstance(effect, Reply)))


def promise_is_not_saved(patch: Patch) -> None:
    """A witness forgets its promises in a crash."""
    original = Acceptor._promise

    def promise(self: Acceptor, request: Promise) -> Sequence[Effect]:
        return [effect for effect in original(self, request) if not isinstance(effect, SavePromise)]

    patch.setattr(Acceptor, "_promise", promise)


def promise_with_the_committed_index(patch: Patch) -> None:
    """A witness answers with the end of its committed records, not of its log."""
    original = Acceptor._promise

    def promise(self: Acceptor, request: Promise) -> Sequence[Effect]:
        last = self._log.at(self._log.committed)
        return [
            Reply(dataclasses.replace(effect.answer, last=last))
            if isinstance(effect, Reply) and isinstance(effect.answer, Promised)
            else effect
            for effect in original(self, request)
        ]

    patch.setattr(Acceptor, "_promise", promise)


def late_append_takes_records_back(patch: Patch) -> None:
    """A late append with fewer records ends the log, and perhaps takes back committed ones."""
    original = Acceptor._append

    def append(self: Acceptor, request: Append) -> Sequence[Effect]:
        before = request.prev.index
        if request.generation >= self._promised and self._log.covers(request.prev) and before >= self._log.base.index:
            self._log.committed = min(self._log.committed, before)
            self._log.replace(before, ())
        return original(self, request)

    patch.setattr(Acceptor, "_append", append)


def lower_generation_is_accepted(patch: Patch) -> None:
    """A witness accepts records from a leader below its promise."""
    original = Acceptor._append

    def append(self: Acceptor, request: Append) -> Sequence[Effect]:
        promised = self._promised, self._candidate
        self._promised = min(self._promised, request.generation)
        effects = original(self, request)
        self._promised, self._candidate = max(promised, (self._promised, self._candidate))
        return [one for one in effects if not isinstance(one, SavePromise) or one.generation > promised[0]]

    patch.setattr(Acceptor, "_append", append)


def promise_to_everybody(patch: Patch) -> None:
    """A witness promises one generation to two candidates."""
    original = Acceptor._promise

    def promise(self: Acceptor, request: Promise) -> Sequence[Effect]:
        if request.generation == self._promised:
            self._candidate = request.candidate
        return original(self, request)

    patch.setattr(Acceptor, "_promise", promise)


def first_log_is_taken(patch: Patch) -> None:
    """A candidate goes on with the log of the first witness that answers."""
    original = Contender._promised

    def promised(self: Contender, answer: Promised, now: float) -> list[ev.Effect]:
        candidacy = self._candidacy
        if candidacy is not None and candidacy.promises and answer.witness not in candidacy.promises:
            answer = dataclasses.replace(answer, last=ORIGIN)
        return original(self, answer, now)

    patch.setattr(Contender, "_promised", promised)


def half_is_a_majority(patch: Patch) -> None:
    """A candidate needs the promises of half of the witnesses only."""
    patch.setattr(contender, "majority", lambda of: of // 2)


def set_of_the_adopted_log_is_ignored(patch: Patch) -> None:
    """A candidate counts promises in the set that it knew before."""
    original = Contender.witnesses.fget  # type: ignore[attr-defined]
    known: dict[int, tuple[str, ...]] = {}  # by the contender

    def witnesses(self: Contender) -> tuple[str, ...]:
        if self._candidacy is None:
            known[id(self)] = original(self)
        return known[id(self)]

    patch.setattr(Contender, "witnesses", property(witnesses))


def fold_is_not_saved(patch: Patch) -> None:
    """The log on disk grows for ever."""
    _with_effects(patch, lambda effects: [one for one in effects if not isinstance(one, SaveFolded)])


BUGS = [
    answer_before_the_sync,
    promise_is_not_saved,
    promise_with_the_committed_index,
    late_append_takes_records_back,
    lower_generation_is_accepted,
    promise_to_everybody,
    first_log_is_taken,
    half_is_a_majority,
    set_of_the_adopted_log_is_ignored,
    fold_is_not_saved,
]
