"""Runs a protocol core on asyncio: events in order, records before messages, and a tick at each deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rhino_core.errors import LocalProtocolError, UnavailableError

HandledT = TypeVar("HandledT", contravariant=True)
ReturnedT = TypeVar("ReturnedT", covariant=True)
WantedT = TypeVar("WantedT", contravariant=True)
EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")

# A tick that comes this late shows that the process was busy or stopped. What others have sent meanwhile is read first:
# otherwise workers would count as lost whose heartbeats are there. A process that stays busy ticks after PATIENCE_S.
LATE_S = 0.2
PATIENCE_S = 5.0


class Machine(Protocol[HandledT, ReturnedT]):
    """A protocol core. Events and effects are frozen, slotted dataclasses in closed unions."""

    def handle(self, event: HandledT, *, now: float) -> Sequence[ReturnedT]:
        """Handles one event at monotonic time `now` (seconds). Returns effects, to be executed in order.

        Raises LocalProtocolError when it is driven against its contract.
        """

    def next_deadline(self) -> float | None:
        """Returns the monotonic time (seconds) of the core's next Tick event, or None."""

    def check_invariants(self) -> None:
        """Raises AssertionError when the core's own state is inconsistent. Tests call it after every event."""


class Ports(Protocol[WantedT]):
    """The outside of a core. No method waits: long work is a task, and its result comes back as an event."""

    def persist(self, effects: Sequence[WantedT]) -> None:
        """Writes the records of one event, atomically. They are durable on return."""

    def publish(self, effect: WantedT) -> None:
        """Carries out one effect. The records of its event are durable. May post events, but not handle them."""


class Runner(Generic[EventT, EffectT]):
    """Runs one core. An event is handled with all its effects before the next one: persist, then publish in order.

    One failure rule: when effects cannot be persisted or published, the core is ahead of the knowledge of others. Then
    nothing more is handled or published, and `run` raises the error to end the process. An error of the core itself has
    no effects: it goes to the caller of `handle`, be it a refusal or a bug. Nobody waits for a posted event, so there
    it is a failure.
    """

    def __init__(self, machine: Machine[EventT, EffectT], ports: Ports[EffectT], tick: Callable[[], EventT]) -> None:
        """`tick` creates the event for a passed deadline."""
        self._machine = machine
        self._ports = ports
        self._tick = tick
        self._events: deque[EventT] = deque()
        self.open = False  # whether events are handled: `run` is active, and nothing has failed
        self._handling = False
        self._failed: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None  # the deadline that it is for
        self._due_at = 0.0  # when it should fire: later than the deadline after a late tick
        self._arm_due = False

    def handle(self, event: EventT) -> None:
        """Handles the event now. All its effects are persisted and published when the method returns.

        Call it from the loop's thread only. Raises the core's error, the error of a failure, and UnavailableError when
        the runner is not open.
        """
        if not self.open:
            raise UnavailableError("this process is starting or stopping: try again")
        if self._handling:
            raise LocalProtocolError(f"{event}: an effect of another event is being published: post it instead")
        self._handle(event)
        self.post()

    def post(self, *events: EventT) -> None:
        """Handles the events now, or after the present event, or when `run` begins. It never raises.

        Earlier posted events come first. Call it from the loop's thread only. The core must not refuse posted events.
        """
        self._events.extend(events)
        while self.open and not self._handling and self._events:
            try:
                self._handle(self._events.popleft())
            except Exception as error:
                self._fail(error)
        if self.open and not self._handling and not self._arm_due:  # one call per turn of the event loop
            self._arm_due = True
            asyncio.get_running_loop().call_soon(self._arm)

    async def run(self) -> None:
        """Runs until cancelled. Raises the error of a failure, so run it in a TaskGroup."""
        self._failed = asyncio.get_running_loop().create_future()
        self.open = True
        self.post()
        try:
            await self._failed
        finally:
            self.open = False
            self._disarm()

    def _handle(self, event: EventT) -> None:
        self._handling = True
        try:
            effects = self._machine.handle(event, now=asyncio.get_running_loop().time())
            try:
                self._ports.persist(effects)
                for effect in effects:
                    self._ports.publish(effect)
            except Exception as error:
                self._fail(error)
                raise
        finally:
            self._handling = False

    def _fail(self, error: Exception) -> None:
        self.open = False
        assert self._failed is not None
        if not self._failed.done():
            self._failed.set_exception(error)

    def _arm(self) -> None:
        self._arm_due = False
        deadline = self._machine.next_deadline()
        if not self.open or deadline == self._timer_at:
            return
        self._disarm()
        if deadline is not None:
            self._timer_at = deadline
            self._call_at(deadline)

    def _call_at(self, when: float) -> None:
        self._due_at = when
        self._timer = asyncio.get_running_loop().call_at(when, self._due)

    def _due(self) -> None:
        now, deadline = asyncio.get_running_loop().time(), self._timer_at
        assert deadline is not None
        if now - self._due_at > LATE_S and now - deadline < PATIENCE_S:
            self._call_at(now + LATE_S / 2)
            return
        self._timer = self._timer_at = None
        self.post(self._tick())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None
