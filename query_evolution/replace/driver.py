"""Acts of a supervisor in the JVM of its driver: locks, the gate, and the query itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhino_core.errors import PreconditionError
from spark_connector.running_session import PLUGIN

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from spark_connector.run_locks import Sign

WAITING = "Waiting"  # begins Spark's message of a query between two batches


class Driver:
    """The query started by `writer`, in this driver. `holder`: the name of the supervisor in this process.

    Raises PreconditionError for a writer of Spark Connect, and for a session without Rhino's plugin.
    """

    def __init__(self, writer: DataStreamWriter, holder: str) -> None:
        rows: Any = getattr(writer, "_df", None)
        spark: Any = getattr(rows, "sparkSession", None)
        self._jvm: Any = getattr(spark, "_jvm", None)
        if rows is None or self._jvm is None:
            raise PreconditionError("a query of Spark Connect cannot be supervised: start it in the driver's process")
        if PLUGIN not in spark.conf.get("spark.plugins", ""):
            raise PreconditionError("the session runs without Rhino: make it with rhino_conf or local_session")
        self.rows = rows
        self.query: StreamingQuery | None = None
        self.stopped = True  # no batch runs: a stop has returned, or nothing was started
        self._writer = writer
        self._holder = holder
        self._restarts = self._jvm.rhino.spark.restart.Restarts
        self._locks = self._jvm.rhino.spark.restart.RunLocks

    # ---- locks

    def take(self, lock: Path) -> bool:
        """Raises OSError, as the others."""
        return bool(self._with_files(lambda: self._locks.take(str(lock), self._holder, "supervised")))

    def take_over(self, lock: Path, sign: Sign) -> bool:
        """Takes the lock from an owner that hangs. `sign`: its last one. Returns false if there is another by now."""
        seen = sign.inode, sign.mtime_ns
        return bool(self._with_files(lambda: self._locks.takeOver(str(lock), self._holder, "supervised", *seen)))

    def let_go(self, lock: Path) -> None:
        self._with_files(lambda: self._locks.letGo(str(lock), self._holder))

    def has(self, lock: Path) -> bool:
        """Whether anybody in this driver has the lock."""
        return bool(self._with_files(lambda: self._locks.holder(str(lock))))

    def _with_files(self, call: Callable[[], Any]) -> Any:
        """Raises OSError for an IOException of Java: to try again may help."""
        from py4j.protocol import Py4JJavaError

        try:
            return call()
        except Py4JJavaError as error:
            its = error.java_exception
            if self._jvm.java.lang.Class.forName("java.io.IOException").isInstance(its):
                raise OSError(str(its.toString())) from error
            raise

    # ---- the query

    @property
    def runs(self) -> bool:
        """False as soon as anybody stops it. Its last batch may not have ended then."""
        return self.query is not None and bool(self.query.isActive)

    @property
    def waits(self) -> bool:
        """Between two batches, because there is no data or the trigger is not due."""
        return self.query is not None and str(self.query.status["message"]).startswith(WAITING)

    @property
    def error(self) -> Exception | None:
        """Why the query has ended. None: it runs, or was stopped."""
        return None if self.query is None else self.query.exception()

    def start(self) -> None:
        self.stopped = False
        self.query = self._writer.start()

    def stop(self) -> None:
        """Waits until the thread of the query has ended, whoever has stopped it. Raises OSError if it lives on."""
        from py4j.protocol import Py4JJavaError

        if self.query is not None:
            try:
                self.query.stop()
            except Py4JJavaError as error:  # after `spark.sql.streaming.stopTimeout`, or its session has ended
                raise OSError(str(error.java_exception.toString())) from error
        self.stopped = True

    # ---- the gate

    def close(self) -> None:
        self._restarts.close(self._run())

    def open(self) -> None:
        self._restarts.open(self._run())

    def is_at_boundary(self) -> bool:
        return bool(self._restarts.isAtBoundary(self._run()))

    def _run(self) -> str:
        return "" if self.query is None else str(self.query.runId)
