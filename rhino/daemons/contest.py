"""A manager among others: a thread with its contender, and the connections to the witnesses.

The managers' event loop waits for each write of the journal, as for a sync of a local one. So the calls to witnesses
have a thread and an event loop of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass

from rhino.daemons.witness_links import WitnessLinks
from rhino_core.errors import InvalidSettingError, PreconditionError, RhinoError, UnavailableError
from rhino_core.runner import Runner
from rhino_core.witnesses import events as ev
from rhino_core.witnesses.contender import Contender, Times
from rhino_core.witnesses.leadership import Identity
from rhino_core.witnesses.log import majority
from rhino_core.witnesses.messages import Answer

log = logging.getLogger(__name__)
LOOK_S = 5.0  # between two looks at the names of the witnesses


@dataclass(frozen=True, slots=True)
class Lead:
    """This manager leads. `values`: of the journal."""

    generation: int
    values: dict[str, bytes]


class Contest:
    """`lead` is done once this manager leads, and `over` when it no longer does: the process has to end then.

    Both have the error of a failure: InvalidSettingError, PreconditionError for an empty journal, UnavailableError when
    another manager leads.
    """

    def __init__(self, links: WitnessLinks, lease_s: float, *, bootstrap: bool) -> None:
        self.lead: Future[Lead] = Future()
        self.over: Future[None] = Future()
        self.silent: tuple[str, ...] = ()  # addresses of witnesses without an answer to the newest look
        self._links = links
        self._lease_s = lease_s
        self._bootstrap = bootstrap
        self._values: dict[str, bytes] = {}
        self._numbers = itertools.count(1)
        self._puts: dict[int, Future[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._runner: Runner[ev.Event, ev.Effect] | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, name="journal on witnesses", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, values: Mapping[str, bytes | None]) -> None:
        """Returns when a majority of the witnesses has the values on disk.

        Raises UnavailableError with the reason when this manager no longer leads. The next leader may know the values,
        or not.
        """
        done: Future[None] = Future()
        with suppress(RuntimeError):  # the loop is closed, so `over` is done
            self._loop.call_soon_threadsafe(self._put, values, (), done)
        wait((done, self.over), 2 * self._lease_s, FIRST_COMPLETED)
        if done.done():
            return done.result()
        if self.over.done():
            raise UnavailableError(str(self.over.exception()))
        raise UnavailableError("this manager no longer leads: no majority of the witnesses has answered in time")

    def close(self) -> None:
        """Ends the thread. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            self._thread.join()

    # ---------------------------------------------------------------- in the thread

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            self._task = self._loop.create_task(self._run())
            self._loop.run_until_complete(self._task)
        except BaseException as caught:
            error = caught
        finally:
            self._end(error)
            self._links.close()
            self._loop.close()

    def _end(self, error: BaseException | None) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        reason = error if isinstance(error, Exception) else UnavailableError("the manager stops")
        for future in (self.lead, self.over):
            if not future.done():
                future.set_exception(reason)

    async def _run(self) -> None:
        cluster, names = await self._identified()
        first = time.time_ns() // 1_000_000 if self._bootstrap else 0
        me = Identity(cluster, str(uuid.uuid4()))
        times = Times(self._lease_s, random.random)
        contender = Contender(me, names, times, first_generation=first, now=self._loop.time())
        self._runner = Runner(contender, self, ev.Due)
        self._runner.post(ev.Due())
        log.info("standby", extra={"witnesses": ", ".join(names)})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runner.run())
            tasks.create_task(self._look(contender))

    async def _identified(self) -> tuple[str, tuple[str, ...]]:
        """The cluster of the journal, and the names of the witnesses, once a majority has told them.

        The others have names without an address. A new journal begins only with all of them.
        """
        count, known = len(self._links.addresses), None
        while True:
            found = await self._links.identify()
            clusters = {one.cluster for one in found.values() if one.cluster}
            if len(clusters) > 1:
                kept = ", ".join(f"{address}: {one.cluster or 'none'}" for address, one in found.items())
                raise InvalidSettingError(f"the witnesses keep the journals of different clusters: {kept}")
            names = tuple(one.witness for one in found.values())
            if len(set(names)) < len(names):
                raise InvalidSettingError(f"addresses of the same witness: {', '.join(found)}; name each one once")
            if clusters and len(names) >= majority(count):
                return clusters.pop(), (*names, *(f"absent-{n}" for n in range(count - len(names))))
            if len(names) == count:
                if not self._bootstrap:
                    raise _empty(found)
                return uuid.uuid4().hex, names
            if known != found:
                log.warning("waiting for witnesses", extra={"answered": ", ".join(found), "of": count})
            known = found
            await asyncio.sleep(self._lease_s / 6)

    async def _look(self, contender: Contender) -> None:
        """Makes the witnesses of the settings those of the journal, one after the other: also one with a new disk."""
        told: set[str] = set()  # witnesses of the journal that are gone
        while True:
            await asyncio.sleep(LOOK_S)
            answers = await self._links.identify()
            self.silent = tuple(address for address in self._links.addresses if address not in answers)
            present, wanted = set(contender.witnesses), {one.witness for one in answers.values()}
            if self.silent:
                continue
            if contender.leads:
                self._approach(present, wanted)
            elif len(present & wanted) < majority(len(present)) and told != (told := present - wanted):
                log.warning("a majority of the journal's witnesses is gone", extra={"gone": ", ".join(sorted(told))})

    def _approach(self, present: set[str], wanted: set[str]) -> None:
        missing, former = sorted(wanted - present), sorted(present - wanted)
        if missing or former:
            after = present | set(missing[:1]) if missing else present - set(former[:1])
            done: Future[None] = Future()
            done.add_done_callback(lambda _: _tell_change(after, done.exception()))
            self._put({}, tuple(sorted(after)), done)

    def _put(self, values: Mapping[str, bytes | None], witnesses: tuple[str, ...], done: Future[None]) -> None:
        if self._runner is None or not self._runner.open:
            return  # `over` has the reason, or will have it
        number = next(self._numbers)
        self._puts[number] = done
        try:
            self._runner.handle(ev.Put(number, values, witnesses))
        except RhinoError as error:
            if self._puts.pop(number, None) is not None:
                done.set_exception(error)

    # ---------------------------------------------------------------- ports of the core

    def persist(self, effects: Sequence[ev.Effect]) -> None:
        """Does nothing: the witnesses persist everything."""

    def publish(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Send(witness, request):
                self._links.send(witness, request, self._answered)
            case ev.Committed(_, records):
                for record in records:
                    for key, value in record.values.items():
                        self._apply(key, value)
            case ev.Restored(snapshot):
                self._values = dict(snapshot.values)
            case ev.Leads(generation):
                log.info("leads", extra={"generation": generation})
                self.lead.set_result(Lead(generation, dict(self._values)))
            case ev.PutDone(number):
                self._puts.pop(number).set_result(None)
            case ev.PutFailed(number):
                del self._puts[number]  # `Stopped` follows, and tells the reason
            case ev.Stopped(reason):
                raise UnavailableError(f"this manager no longer leads: {reason}")
            case ev.JournalEmpty():
                raise _empty(self._links.addresses)
            case ev.Elected(generation, last):
                log.info("elected", extra={"generation": generation, "journal": str(last)})

    def _apply(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def _answered(self, answer: Answer) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._hear, answer)
        except RuntimeError:  # the loop is closed: nobody waits for the answer
            log.debug("answer after the end")

    def _hear(self, answer: Answer) -> None:
        if self._runner is not None:
            self._runner.post(answer)


def _tell_change(witnesses: set[str], error: BaseException | None) -> None:
    names = ", ".join(sorted(witnesses))
    if error is None:
        log.info("witnesses change", extra={"witnesses": names})
    else:
        log.warning("witnesses do not change", extra={"witnesses": names, "error": str(error)})


def _empty(addresses: Mapping[str, object] | Sequence[str]) -> PreconditionError:
    return PreconditionError(
        f"the witnesses {', '.join(addresses)} keep no journal: start with --bootstrap if this is a new deployment"
    )
