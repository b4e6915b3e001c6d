package rhino.spark.driver

import java.util.UUID

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * Pauses queries that could not be followed, for example because the checkpoint is unreadable. Each has its own pause.
 *
 * @param nowNs a monotonic clock, in nanoseconds
 */
private[spark] class FailurePauses(nowNs: () => Long) extends Logging {
  private val PauseMs = 10000L
  private val until = mutable.Map.empty[UUID, Long]

  /** Runs `act` for a query unless the query is paused. A failure pauses this query only. */
  def attempt(run: QueryRun)(act: => Unit): Unit = if (until.get(run.runId).forall(nowNs() - _ >= 0)) {
    try act
    catch {
      case error: InterruptedException => throw error
      case NonFatal(error) =>
        logWarning(s"Rhino cannot follow query ${run.job} at ${run.checkpoint}; looking again in ${PauseMs / 1000} " +
          "s. Other queries are followed as before", error)
        until.put(run.runId, nowNs() + PauseMs * 1000000L)
    }
  }

  /** Forgets all other runs. */
  def retain(runs: Set[UUID]): Unit = until --= until.keySet.toSet -- runs
}
