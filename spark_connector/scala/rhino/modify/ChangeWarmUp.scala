package rhino.spark.modify

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.settings.Settings

/** Makes the first change of a run as fast as later ones, while the run is young. Executors may join later. */
private[modify] class ChangeWarmUp(stream: StreamExecution, executors: () => Seq[(String, String)]) extends Logging {
  private var known = Set.empty[String] // ids of executors
  private var newest = Option.empty[Long] // batch

  /** When a batch is planned, and an executor is new: warms up, on a thread of its own. */
  def look(batch: IncrementalExecution): Unit = if (!newest.contains(batch.currentBatchId)) {
    newest = Some(batch.currentBatchId)
    val tookMs = stream.recentProgress.filter(_.durationMs.containsKey("addBatch")).map(_.batchDuration)
    if (tookMs.length >= ChangeWarmUp.Batches) start(batch, tookMs.last)
  }

  private def start(batch: IncrementalExecution, batchMs: Long): Unit = {
    val due = Internals.executors(batch.sparkSession.sparkContext).filterNot(its => known(its.id))
    known ++= due.map(_.id)
    if (due.nonEmpty) {
      val thread = new Thread(() => warmUp(batch, due, batchMs), "rhino-warm-up")
      thread.setDaemon(true)
      // Part of the key of a compiled class.
      thread.setContextClassLoader(stream.queryExecutionThread.getContextClassLoader)
      thread.start()
    }
  }

  /** A change does not depend on it. */
  private def warmUp(batch: IncrementalExecution, due: Seq[Internals.Executor], batchMs: Long): Unit =
    try {
      val function = PointSql.functionsOf(batch.logical).headOption
      function.foreach(its => asQuery(batch)(new FunctionWarmUp(its, batch, executors).run(due, batchMs)))
      if (ChangeWarmUp.mayNeedCode(batch.logical)) {
        val keeps = Settings(Internals.conf(batch.sparkSession.sparkContext)).keepPythonWorkers
        val python = if (function.isEmpty && keeps) startPython(batch, due) else None
        val places = executors().filter { case (_, id) => due.exists(_.id == id) } // none in local mode
        CompileAhead.rehearse(stream, batch, places, MadeUpChanges.of(batch.logical, python))
      }
      logInfo(s"query ${stream.id}: executors ${due.map(_.id).mkString(", ")} are ready for changes")
    } catch {
      case NonFatal(error) => // Python workers and Spark's planner have no common class
        logInfo(s"query ${stream.id}: the first change may take longer", error)
    }

  /** Returns the version of Python. Somebody has asked for it, and reads why they do not get it. */
  private def startPython(batch: IncrementalExecution, due: Seq[Internals.Executor]): Option[String] =
    try Some(asQuery(batch)(new PythonStart(batch, executors).run(due)))
    catch {
      case NonFatal(error) => // of Python workers and of jobs
        logWarning(
          s"query ${stream.id}: ${Settings.KeepPythonWorkers} is true, but executors have no Python workers for " +
            s"changes yet: ${error.getMessage}")
        None
    }

  private def asQuery[T](batch: IncrementalExecution)(act: => T): T =
    Internals.withArtifacts(stream)(batch.sparkSession.withActive(act))
}

private object ChangeWarmUp {
  private val Batches = 2 // of a run, until one is about as long as the next

  /** Only at a point, a change may need other Java code. */
  private def mayNeedCode(plan: LogicalPlan): Boolean = plan.exists {
    case point: CollectMetrics => point.isStreaming
    case _ => false
  }
}
