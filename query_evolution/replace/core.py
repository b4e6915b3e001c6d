"""The right to run a query while its code is replaced. No I/O, no clock.

A supervisor is the part of an application that runs one query (`supervise.py`). It asks `decide` for the next act, does
it, and tells `after` whether it could. It knows others by two things only: facts in the checkpoint, each written once,
and two kinds of locks. The kernel takes a lock back when its process ends.

- The *right to run* is a lock. Nobody starts the query, or decides about a granted restart, without it. A spare may
  take it from an owner that has been silent for long: the owner then starts no further batch.
- The lock of a *request* is held by the asking application, until its restart is decided. So others see it alive.

Every decision is based on an earlier look. It may be late: then the act fails, because a file is there already or a
lock belongs to somebody else, and the supervisor looks again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from rhino_core.transitions import TransitionTable

LOOK_S = 3.0  # a supervisor that has not looked for so long has had a pause


class Answer(enum.StrEnum):
    """The end of a request. By the supervisor of the running query, or by the asking one."""

    PARKED = "parked"  # granted: no batch runs, and the former code will start none unless the restart is returned
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class End(enum.StrEnum):
    """The end of a granted restart. Written only by a process with the right to run."""

    CONFIRMED = "confirmed"  # the new code has the query
    RETURNED = "returned"  # the former code goes on


@dataclass(frozen=True, slots=True)
class Restart:
    """The state of one restart according to the facts. `reason`: why it was refused or returned."""

    number: int
    answer: Answer | None = None
    end: End | None = None
    reason: str = ""


class Phase(enum.StrEnum):
    BEGIN = "begin"  # knows nothing yet
    BLOCKED = "blocked"  # another one has the right to run
    OWNING = "owning"  # has the right to run, and has not asked
    ASKING = "asking"  # waits until the right to run is free
    GRANTED = "granted"  # has the right to run, after it has asked
    TRIAL = "trial"  # runs the new code, which is not confirmed
    FAILED = "failed"  # has stopped the new code
    RUNNING = "running"
    PARKING = "parking"  # has closed the gate for another application
    PARKED = "parked"  # has granted a restart, and still has the right to run
    STANDBY = "standby"  # has let go, and waits for the end
    BACK = "back"  # has the right to run again
    DONE = "done"


class Act(enum.StrEnum):
    WAIT = "wait"
    TAKE = "take"  # the right to run. Fails if another one has it
    TRY = "try"  # to take the right to run. Becomes `FINISH` if another one has it
    MISS = "miss"  # what `TAKE` becomes if it has failed
    LET_GO = "let go"  # the right to run
    YIELD = "yield"  # let go of the right to run, for a restart that was granted to another application
    ASK = "ask"  # write a request
    WITHDRAW = "withdraw"  # write the answer `withdrawn`. Fails if there is an answer
    PARK = "park"  # write the answer `parked`. Fails if there is an answer
    CONFIRM = "confirm"  # write the end `confirmed`
    RETURN = "return"  # write the end `returned`
    START = "start"
    STOP = "stop"
    CLOSE = "close the gate"
    OPEN = "open the gate"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Me:
    """A supervisor. `number`: the restart it is about. 0: none yet.

    `spare`: it has the code of the running query. It waits until nobody runs the query, and asks nobody.
    """

    phase: Phase = Phase.BEGIN
    number: int = 0
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A supervisor's view.

    `restart`: its subject. `asker_lives`: of this restart. `asked`: the oldest request without an answer and with a
    live application. `undecided`: another granted restart without an end. `undecided_lives`: its application does.
    `runs`: its own query is active. Spark says no as soon as somebody stops it, while its batch may still write.
    `stopped`: a stop by this supervisor has returned, so no batch runs. `at_boundary`: no batch runs, and the gate lets
    none begin. `proved`: enough batches of the new code are committed. `late`: the time of this phase is over.
    `replaced`: other code was confirmed since this supervisor began.
    """

    restart: Restart | None = None
    asked: int | None = None
    undecided: int | None = None
    undecided_lives: bool = False
    asker_lives: bool = False
    runs: bool = False
    stopped: bool = False
    at_boundary: bool = False
    proved: bool = False
    late: bool = False
    replaced: bool = False


class Unchanged:
    """How long something has been the same, such as the last sign of an owner, by the clock of the one that looks."""

    def __init__(self) -> None:
        self._found: object = None
        self._since = self._looked = 0.0

    def lasts_s(self, found: object, now: float) -> float:
        """`found`: None is never the same. `now`: seconds of a monotonic clock.

        After a pause of its own the supervisor counts anew: others may have had the same pause.
        """
        if found is None or found != self._found or now - self._looked > LOOK_S:
            self._found, self._since = found, now
        self._looked = now
        return now - self._since


def decide(me: Me, seen: Seen) -> Act:
    """Returns the next act."""
    return _DECISIONS[me.phase](me, seen)


def after(me: Me, act: Act, done: bool, number: int = 0) -> Me:
    """Returns the supervisor after an act. `done`: it could. `number`: the restart it was about, see `about`."""
    if not done:
        act = Act.FINISH if act is Act.TRY else Act.MISS
    following = SUPERVISOR.rows.get((me.phase, act))
    if following is None:
        return me
    return replace(me, phase=following, number=number if act in (Act.ASK, Act.CLOSE) else me.number)


def about(me: Me, act: Act, seen: Seen) -> int:
    """Returns the number of the restart of an act. Of `ASK`, the shell knows it."""
    if act is Act.CLOSE:
        return seen.asked or 0
    return (seen.undecided or 0) if me.phase is Phase.OWNING else me.number


SUPERVISOR = TransitionTable(
    Phase.BEGIN,
    {
        (Phase.BEGIN, Act.TAKE): Phase.OWNING,
        (Phase.BEGIN, Act.MISS): Phase.BLOCKED,
        (Phase.BLOCKED, Act.ASK): Phase.ASKING,
        (Phase.BLOCKED, Act.TAKE): Phase.OWNING,
        (Phase.BLOCKED, Act.FINISH): Phase.DONE,
        (Phase.OWNING, Act.START): Phase.RUNNING,
        (Phase.OWNING, Act.YIELD): Phase.BLOCKED,
        (Phase.OWNING, Act.LET_GO): Phase.DONE,
        (Phase.ASKING, Act.TAKE): Phase.GRANTED,
        (Phase.ASKING, Act.TRY): Phase.GRANTED,
        (Phase.ASKING, Act.FINISH): Phase.DONE,
        (Phase.GRANTED, Act.START): Phase.TRIAL,
        (Phase.GRANTED, Act.WITHDRAW): Phase.OWNING,
        (Phase.GRANTED, Act.YIELD): Phase.ASKING,
        (Phase.GRANTED, Act.LET_GO): Phase.DONE,
        (Phase.TRIAL, Act.CONFIRM): Phase.RUNNING,
        (Phase.TRIAL, Act.STOP): Phase.FAILED,
        (Phase.FAILED, Act.LET_GO): Phase.DONE,
        (Phase.RUNNING, Act.LET_GO): Phase.DONE,
        (Phase.RUNNING, Act.CLOSE): Phase.PARKING,
        (Phase.PARKING, Act.LET_GO): Phase.DONE,
        (Phase.PARKING, Act.OPEN): Phase.RUNNING,
        (Phase.PARKING, Act.PARK): Phase.PARKED,
        (Phase.PARKED, Act.LET_GO): Phase.STANDBY,
        (Phase.STANDBY, Act.TAKE): Phase.BACK,
        (Phase.STANDBY, Act.TRY): Phase.BACK,
        (Phase.STANDBY, Act.FINISH): Phase.DONE,
        (Phase.BACK, Act.START): Phase.RUNNING,
        (Phase.BACK, Act.LET_GO): Phase.DONE,
    },
)


def _begin(me: Me, seen: Seen) -> Act:
    return Act.TAKE


def _blocked(me: Me, seen: Seen) -> Act:
    """A spare has old code once other code was confirmed. The parties of a restart have the right before it."""
    if not me.spare:
        return Act.ASK
    if seen.replaced:
        return Act.FINISH
    return Act.TAKE if seen.undecided is None or seen.late else Act.WAIT


def _owning(me: Me, seen: Seen) -> Act:
    """A granted restart may be about to take the right to run. If its application has ended, it has failed."""
    if me.spare and seen.replaced:
        return Act.LET_GO
    if seen.undecided is None:
        return Act.START
    return Act.YIELD if seen.undecided_lives else Act.RETURN


def _asking(me: Me, seen: Seen) -> Act:
    """The application that has granted the restart may have ended, so nobody else would run the query."""
    answer = seen.restart.answer if seen.restart else None
    if answer is Answer.REFUSED or answer is Answer.WITHDRAWN:
        return Act.FINISH
    if not seen.late:
        return Act.TAKE
    return Act.WITHDRAW if answer is None else Act.TRY


def _granted(me: Me, seen: Seen) -> Act:
    """Nobody else can write an end now. Without an answer, the former code has ended without a word.

    `withdrawn` is by this one, and an error came after the write.
    """
    restart = seen.restart or Restart(me.number)
    if restart.answer in (None, Answer.WITHDRAWN):
        return Act.WITHDRAW if seen.undecided is None else Act.YIELD
    return Act.START if restart.answer is Answer.PARKED and restart.end is None else Act.LET_GO


def _trial(me: Me, seen: Seen) -> Act:
    if seen.runs and seen.proved:
        return Act.CONFIRM
    return Act.WAIT if seen.runs and not seen.late else Act.STOP


def _failed(me: Me, seen: Seen) -> Act:
    return Act.LET_GO if seen.restart and seen.restart.end else Act.RETURN


def _running(me: Me, seen: Seen) -> Act:
    if not seen.runs:
        return _ended(seen)
    return Act.WAIT if seen.asked is None else Act.CLOSE


def _parking(me: Me, seen: Seen) -> Act:
    if not seen.runs:
        return _ended(seen)
    answer = seen.restart.answer if seen.restart else None
    if answer is Answer.PARKED:  # by this one, and an error came after the write
        return Act.PARK
    if answer is not None:
        return Act.OPEN
    if not seen.asker_lives:
        return Act.WITHDRAW
    return Act.PARK if seen.at_boundary else Act.WAIT


def _parked(me: Me, seen: Seen) -> Act:
    return _ended(seen)


def _ended(seen: Seen) -> Act:
    """A stop waits for a batch that still writes, however the query has ended. The right to run is kept so long."""
    return Act.LET_GO if seen.stopped else Act.STOP


def _standby(me: Me, seen: Seen) -> Act:
    """An application that returns the query lives until it has let go. Others with the right after it run the query."""
    end = seen.restart.end if seen.restart else None
    if end is End.CONFIRMED:
        return Act.FINISH
    if seen.asker_lives:
        return Act.WAIT if end is None else Act.TAKE
    return Act.TRY if end is End.RETURNED and seen.late else Act.TAKE


def _back(me: Me, seen: Seen) -> Act:
    end = seen.restart.end if seen.restart else None
    if end is End.CONFIRMED:
        return Act.LET_GO
    return Act.START if end is End.RETURNED else Act.RETURN


def _done(me: Me, seen: Seen) -> Act:
    return Act.FINISH


_DECISIONS: dict[Phase, Callable[[Me, Seen], Act]] = {
    Phase.BEGIN: _begin,
    Phase.BLOCKED: _blocked,
    Phase.OWNING: _owning,
    Phase.ASKING: _asking,
    Phase.GRANTED: _granted,
    Phase.TRIAL: _trial,
    Phase.FAILED: _failed,
    Phase.RUNNING: _running,
    Phase.PARKING: _parking,
    Phase.PARKED: _parked,
    Phase.STANDBY: _standby,
    Phase.BACK: _back,
    Phase.DONE: _done,
}
