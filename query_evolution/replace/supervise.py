"""`supervise`: runs a query with code that another application, or another call in this one, can replace."""

from __future__ import annotations

import contextlib
import enum
import getpass
import logging
import math
import os
import signal
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from query_evolution.modify.modifications import folder_of
from query_evolution.replace.core import Act, Answer, End, Me, Phase, Restart, Seen, Unchanged, about, after, decide
from query_evolution.replace.driver import Driver
from query_evolution.replace.folder import RestartFolder
from query_evolution.replace.rehearsal import OtherOperatorsError, rehearse
from rhino_core import failpoints
from rhino_core.errors import (
    AccessDeniedError,
    ConflictError,
    IntegrityError,
    InvalidSettingError,
    PreconditionError,
    RhinoError,
    UnavailableError,
)
from spark_connector.facts import make_folder
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.run_locks import RIGHT


class Outcome(enum.StrEnum):
    """Why a supervised query has ended without an error."""

    STOPPED = "stopped"
    REPLACED = "replaced"  # other code has it, and has proved itself


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of new code. Times are seconds of the monotonic clock.

    `batches`: so many must be committed before the new code is confirmed. `give_up_s`: no batch may take longer, the
    first one with the start of the query. `ask_s`: how long the former code may take to end its batch. `rehearse_s`:
    how long the rehearsal waits for its batches, the first one and, in a new driver, another one; a longer one is
    stopped. `silent_s`: a standby also takes the query from a driver that has given no sign of life for so long.

    Raises InvalidSettingError for a number out of range.
    """

    batches: int = 3
    give_up_s: float = 60.0
    ask_s: float = 300.0
    rehearse_s: float = 15.0
    silent_s: float = math.inf

    def __post_init__(self) -> None:
        if self.batches < 1:
            raise InvalidSettingError(f"batches: {self.batches}: must be 1 or more")
        for name in ("give_up_s", "ask_s"):
            if not getattr(self, name) > 0:
                raise InvalidSettingError(f"{name}: {getattr(self, name)}: must be above 0")
        if not self.silent_s >= SILENT_MIN_S:
            raise InvalidSettingError(f"silent_s: {self.silent_s}: must be {SILENT_MIN_S:g} or more")


if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)
POLL_S = 0.02
QUICK_POLL_S = 0.005  # while a query is parked
CLAIM_S = 1.0  # a driver with Rhino's plugin that runs the query takes the right to run within this time
SILENT_MIN_S = 6.0  # three signs
BACK_S = 30.0  # the former code waits for the right to run, after another one has decided
REASON_MAX = 4000  # characters; Spark's errors may carry whole plans
TROUBLE_S = 1.0  # pause after a step that failed
_FREE = frozenset({Phase.BEGIN, Phase.BLOCKED})  # this application neither has the query, nor waits for it
_QUICK = frozenset({Phase.ASKING, Phase.GRANTED, Phase.PARKING, Phase.PARKED})


DEFAULT_TRIAL = Trial()


def supervise(
    writer: DataStreamWriter,
    checkpoint: str,
    *,
    output_mode: str = "append",
    trial: Trial = DEFAULT_TRIAL,
    standby: bool = False,
) -> Supervised:
    """Runs a query, takes it over from its present application, and gives it to the next one that asks.

    `writer`: a query up to `.start()`, without checkpoint and output mode: they are set here. `checkpoint`: its
    checkpointLocation, a folder for this process, with hard links and POSIX locks. If nobody runs the query, it is
    started. Otherwise the new code is rehearsed, then the other application stops between two batches, and this one
    goes on. It is confirmed after `trial.batches` batches. Before that, the other application goes on if this one fails
    or ends. Returns at once; `wait` has the outcome.

    `standby`: this application has the same code as the running one, and never replaces it. It rehearses, waits until
    the process of the query's driver has ended, or has given no sign of life for `trial.silent_s`, and then runs the
    query. Any number may wait.

    Raises InvalidRequestError for a location not visible as files on this machine, and PreconditionError for Spark
    Connect and for a session without Rhino.
    """
    folder = folder_of(checkpoint).absolute()
    placed = writer.option("checkpointLocation", checkpoint).outputMode(output_mode)
    return Supervised(
        Driver(placed, f"supervisor {uuid.uuid4()}"), RestartFolder(folder), output_mode, trial, standby=standby
    )


class Supervised:
    """A supervised query. Its thread ends with the query, or when other code has it."""

    def __init__(
        self, driver: Driver, folder: RestartFolder, output_mode: str, trial: Trial, *, standby: bool = False
    ) -> None:
        from pyspark import InheritableThread

        self._driver = driver
        self._folder = folder
        self._checkpoint = folder.path.parent
        self._output_mode = output_mode
        self._trial = trial
        self._me = Me(spare=standby)
        self._since = time.monotonic()  # of the phase; in a trial, of the batch
        self._waits_for = Unchanged()  # a restart, in this phase
        self._known = 0  # the newest restart when this supervisor began
        self._rehearsed = self._cold = False  # cold: it waits although its rehearsal has failed
        self._silence = Unchanged()
        self._trouble = ""  # why the last step failed
        self._asks = 0  # the request whose lock is held
        self._first = 0  # batch of the trial
        self._committed = -1
        self._failure: Exception | None = None  # why the query was not started, or has ended
        self._outcome: Outcome | None = None
        self._stopping = threading.Event()
        self._thread = InheritableThread(target=self._run, name="rhino-supervisor", daemon=True)
        self._thread.start()

    # ---- for the application

    @property
    def query(self) -> StreamingQuery | None:
        """The run of this application. None before its first one. It has ended while other code has the query."""
        return self._driver.query

    @property
    def phase(self) -> Phase:
        """Its present activity, for people."""
        return self._me.phase

    @property
    def rehearsed(self) -> bool:
        """Whether its code has run its rehearsal. A standby is warm then."""
        return self._rehearsed

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Blocks until the query has ended, or other code has it. None: neither was so within `timeout_s` seconds.

        Raises the error of the query. Raises PreconditionError if the new code has failed on trial and the former code
        goes on; UnavailableError if the former one has not answered in time; and ConflictError if another process has
        the query. In all these cases this application runs the query no more.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return None
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def stop(self) -> None:
        """Stops the query. On trial, the former code goes on. Blocks until the thread has ended."""
        self._stopping.set()
        self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        try:
            while self._me.phase is not Phase.DONE:
                self._attempt()
        except Exception as error:  # `wait` raises it
            log.warning("the supervisor ends", extra={"phase": self._me.phase, "error": str(error)})
            self._failure = error
        try:
            self._leave()
        except Exception as error:  # the JVM has ended, and its locks with it
            self._failure = self._failure or error

    def _leave(self) -> None:
        """Nothing waits for this thread any more. A running query keeps the right to run."""
        if self._me.phase is Phase.PARKING:
            self._driver.open()
        while not self._driver.runs and not self._driver.stopped:
            try:
                self._driver.stop()
            except OSError:
                time.sleep(TROUBLE_S)
        if self._driver.stopped:
            self._let_go()

    def _attempt(self) -> None:
        """Steps. Tries again while the query depends on this supervisor, whatever the file system does meanwhile."""
        try:
            self._step()
            self._trouble = ""
        except (OSError, IntegrityError, AccessDeniedError) as error:
            waits_in_vain = self._me.phase is Phase.ASKING and self._is_late(None)
            ends = waits_in_vain or (self._stopping.is_set() and self._driver.stopped)
            if ends or (self._me.phase in _FREE and not self._me.spare):
                raise
            if str(error) != self._trouble:
                log.warning("the supervisor tries again", extra={"phase": self._me.phase, "error": str(error)})
            self._trouble = str(error)
            if self._stopping.wait(TROUBLE_S):
                time.sleep(POLL_S)

    def _step(self) -> None:
        if self._stopping.is_set():
            self._stop()
        seen = self._see()
        act = decide(self._me, seen)
        number = about(self._me, act, seen)
        before = self._me.phase
        done, number = self._perform(act, number, seen)
        self._me = after(self._me, act, done, number)
        if self._me.phase is not before:
            self._entered()
        elif act is Act.WAIT or not done:
            time.sleep(QUICK_POLL_S if before in _QUICK else POLL_S)

    def _stop(self) -> None:
        if self._me.phase in (Phase.RUNNING, Phase.PARKING, Phase.TRIAL):
            self._driver.stop()
        elif self._me.phase in (Phase.BEGIN, Phase.BLOCKED, Phase.ASKING, Phase.STANDBY):
            if self._me.phase is Phase.ASKING:
                self._folder.answer(self._me.number, Answer.WITHDRAWN, "the application has stopped")
            self._outcome, self._me = Outcome.STOPPED, Me(Phase.DONE)

    def _entered(self) -> None:
        self._since, self._waits_for = time.monotonic(), Unchanged()
        if self._me.phase in (Phase.RUNNING, Phase.DONE) and self._asks:
            self._driver.let_go(self._folder.lock(str(self._asks)))
            self._asks = 0

    def _let_go(self) -> None:
        self._driver.let_go(self._folder.lock(RIGHT))
        if self._asks:
            self._driver.let_go(self._folder.lock(str(self._asks)))

    # ---- its looks

    def _see(self) -> Seen:
        if self._me.phase is Phase.RUNNING:
            asked = self._asked(self._folder.open_requests())
            return Seen(asked=asked, runs=self._driver.runs, stopped=self._driver.stopped)
        if self._me.phase is Phase.PARKED:  # it stops and lets go, whatever the files say
            return Seen(stopped=self._driver.stopped)
        restarts = self._folder.read()
        if self._me.phase is Phase.BEGIN:
            self._known = max((one.number for one in restarts), default=0)
        mine = next((one for one in restarts if one.number == self._me.number), None)
        open_ones = [r.number for r in restarts if r.answer is Answer.PARKED and r.end is None and r is not mine]
        undecided = max(open_ones, default=None)
        runs = self._me.phase in (Phase.TRIAL, Phase.PARKING) and self._driver.runs
        lives = mine is not None and self._folder.lives(mine.number)
        ended = mine.number if mine is not None and mine.end and not lives else None
        return Seen(
            restart=mine,
            asker_lives=lives,
            undecided=undecided,
            undecided_lives=undecided is not None and self._folder.lives(undecided),
            runs=runs,
            stopped=self._driver.stopped,
            at_boundary=self._me.phase is Phase.PARKING and self._driver.is_at_boundary(),
            proved=self._me.phase is Phase.TRIAL and self._has_proved(),
            late=self._is_late(undecided if self._me.phase is Phase.BLOCKED else ended),
            replaced=any(one.number > self._known and one.end is End.CONFIRMED for one in restarts),
        )

    def _asked(self, numbers: list[int]) -> int | None:
        for number in numbers:
            if self._folder.lives(number):
                why = self._folder.refusal(number)
                if not why:
                    return number
                reason = f"only user {getpass.getuser()}, whose driver runs the query, may replace it: {why}"
                self._folder.answer(number, Answer.REFUSED, reason[:REASON_MAX])
        return None

    def _has_proved(self) -> bool:
        """Also notes the progress of the trial: a batch is committed, or there is none to run."""
        logs = QueryCheckpoint(self._checkpoint)
        committed, planned = (max(logs.batches(log), default=-1) for log in ("commits", "offsets"))
        if committed > self._committed or (planned <= committed and self._driver.waits):
            self._since = time.monotonic()
        self._committed = committed
        return committed - self._first + 1 >= self._trial.batches

    def _is_late(self, restart: int | None) -> bool:
        """`restart`: in phases without a limit of their own, the one that others may be about to act on."""
        passed_s = time.monotonic() - self._since
        if self._me.phase is Phase.ASKING:
            return passed_s > self._trial.ask_s
        if self._me.phase is Phase.TRIAL:
            return passed_s > self._trial.give_up_s
        return self._waits_for.lasts_s(restart, time.monotonic()) > BACK_S

    # ---- its acts

    def _perform(self, act: Act, number: int, seen: Seen) -> tuple[bool, int]:
        """Returns whether it could, and the number of the act's restart."""
        if act is Act.ASK:
            return True, self._ask()
        if act in (Act.TAKE, Act.TRY, Act.PARK, Act.WITHDRAW, Act.CONFIRM, Act.RETURN):
            done = self._contest(act, number)
            if act is Act.TRY and not done:
                self._note_outcome(seen)
            return done, number
        if act in (Act.LET_GO, Act.FINISH):
            self._note_outcome(seen)
        if act in (Act.LET_GO, Act.YIELD):
            self._driver.let_go(self._folder.lock(RIGHT))
        elif act is Act.START:
            self._start()
        elif act is Act.STOP:
            self._note_failure(seen)
            self._driver.stop()
        elif act is Act.CLOSE:
            self._driver.close()
        elif act is Act.OPEN:
            self._driver.open()
        return True, number

    def _contest(self, act: Act, number: int) -> bool:
        """Does an act that others may have done before. Returns False if they have."""
        if act in (Act.TAKE, Act.TRY):
            return self._take()
        if act in (Act.PARK, Act.WITHDRAW):
            answer, reason = (Answer.PARKED, "") if act is Act.PARK else (Answer.WITHDRAWN, "nobody waits for it")
            return self._folder.answer(number, answer, reason) or self._says(number).answer is answer
        end = End.CONFIRMED if act is Act.CONFIRM else End.RETURNED
        why = str(self._failure or "the driver of the new code has ended")[:REASON_MAX]
        reason = why if end is End.RETURNED else ""
        return self._folder.end(number, end, reason) or self._says(number).end is end

    def _says(self, number: int) -> Restart:
        """Reads the fact of a restart. This supervisor may have written it, if an error came after the write."""
        return next((one for one in self._folder.read() if one.number == number), Restart(number))

    def _take(self) -> bool:
        lock = self._folder.lock(RIGHT)
        if self._me.phase is not Phase.BEGIN:
            if self._me.phase is Phase.BLOCKED and not (self._rehearsed or self._cold) and self._folder.committed():
                self._warm()
            return self._driver.take(lock) or (self._me.spare and self._take_over(lock))
        if not self._folder.path.exists():
            make_folder(self._folder.lock(RIGHT).parent)
            if (self._checkpoint / "offsets").exists():
                time.sleep(CLAIM_S)
        if self._driver.take(lock):
            return True
        if not self._me.spare and not self._folder.owner_is_supervised():
            raise PreconditionError(
                f"{self._checkpoint}: {self._folder.owner()} runs the query and cannot give it away, because it was "
                "started by start(): stop it, and start it by query_evolution.supervise from now on"
            )
        return False

    def _take_over(self, lock: Path) -> bool:
        """Takes the right from a driver that hangs, or whose machine or network is gone.

        A driver on this machine is killed. Another one begins no further batch, but may still be in one when it goes
        on.
        """
        sign = self._folder.sign()
        silent_s = self._silence.lasts_s(sign, time.monotonic())
        if sign is None or silent_s < self._trial.silent_s:
            return False
        pid = self._folder.owner_here()
        extra = {"checkpoint": str(self._checkpoint), "owner": self._folder.owner(), "silent_s": round(silent_s, 1)}
        if self._folder.sign() != sign:  # another standby has been faster, and `pid` may be its process
            return False
        log.warning("the driver gives no sign of life: this standby runs its query", extra=extra)
        self._silence = Unchanged()  # if it fails, others have been faster
        failpoints.hit("restart.take_over.before")
        if pid is None:
            taken = self._driver.take_over(lock, sign)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            taken = False  # at the next look
        failpoints.hit("restart.take_over.after")
        return taken

    def _warm(self) -> None:
        """A standby whose sources have no rows, or whose machine is slow, is better cold than gone."""
        try:
            self._rehearse()
        except OtherOperatorsError:
            raise
        except PreconditionError as error:
            extra = {"checkpoint": str(self._checkpoint), "error": str(error)}
            log.warning("the standby waits without a rehearsal", extra=extra)
            self._cold = True

    def _rehearse(self) -> None:
        rehearse(
            self._driver.rows,
            self._checkpoint,
            output_mode=self._output_mode,
            first_batch_s=self._trial.rehearse_s,
            new_driver=not self._driver.has(self._folder.lock(RIGHT)),
        )
        self._rehearsed = True

    def _ask(self) -> int:
        if self._folder.committed():  # else there is no state yet, and perhaps no checkpoint, to compare with
            self._rehearse()
        if self._asks:
            self._driver.let_go(self._folder.lock(str(self._asks)))
        self._asks = self._folder.ask(f"{getpass.getuser()}@{socket.gethostname()}")
        self._driver.take(self._folder.lock(str(self._asks)))  # from now on it is seen
        return self._asks

    def _start(self) -> None:
        self._committed = max(self._folder.committed(), default=-1)
        self._first = self._committed + 1
        try:
            failpoints.hit("restart.start.before")
            self._driver.start()
            failpoints.hit("restart.start.after")
        except Exception as error:  # it does not run, which ends the trial or the supervisor
            self._failure = error

    def _note_failure(self, seen: Seen) -> None:
        """Why a trial ends."""
        if self._me.phase is Phase.TRIAL and self._failure is None:
            late = f"no batch was committed within {self._trial.give_up_s:g} s" if seen.runs else "it was stopped"
            self._failure = self._driver.error or UnavailableError(late)

    def _note_outcome(self, seen: Seen) -> None:
        """Before the last phase. `wait` raises `_failure`, or else returns `_outcome`."""
        phase, restart = self._me.phase, seen.restart
        if phase in (Phase.RUNNING, Phase.PARKING):
            self._failure = self._failure or self._driver.error
            self._outcome = Outcome.STOPPED
        elif phase is Phase.FAILED:
            failed = self._failure
            if self._stopping.is_set():
                self._failure, self._outcome = None, Outcome.STOPPED
            else:
                self._failure = PreconditionError(f"the new code has failed, and the former one goes on: {failed}")
                self._failure.__cause__ = failed
        elif phase in (Phase.STANDBY, Phase.BACK) and restart is not None and restart.end is End.CONFIRMED:
            self._outcome = Outcome.REPLACED
        elif phase in (Phase.BLOCKED, Phase.OWNING):
            why = "its code was replaced since this standby began: start a standby with the present code"
            self._failure = ConflictError(f"{self._checkpoint}: {why}")
        elif phase is not Phase.PARKED:
            self._failure = self._conflict(restart)

    def _conflict(self, restart: Restart | None) -> RhinoError:
        if self._me.phase is Phase.ASKING and restart is not None and restart.answer is Answer.WITHDRAWN:
            return UnavailableError(f"{self._folder.owner()} has not ended its batch within {self._trial.ask_s:g} s")
        why = f": {restart.reason}" if restart is not None and restart.reason else ""
        return ConflictError(f"{self._checkpoint}: {self._folder.owner()} has the query{why}")
