package rhino.spark.modify

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/**
 * The modifications of one run of a query. The thread of the query asks `at` when it plans a batch. Another thread
 * checks new records.
 */
private[modify] class ModifiedQuery(val stream: StreamExecution, executors: () => Seq[(String, String)])
  extends Logging {

  private val session = Internals.session(stream)
  private val folder =
    new ModificationFolder(new Path(stream.resolvedCheckpointRoot), session.sessionState.newHadoopConf())
  private val refusedFiles = mutable.Set.empty[Long] // whose outcome could not be written
  private var ledger = Option.empty[Ledger] // read when the run plans its first batch
  private var planned = Option.empty[(Long, Seq[Modification])]

  def isLocal: Boolean = folder.isLocal

  /** What the batch must be planned with. Binds what is ready before it returns. The same answer for each try. */
  def at(batch: Long): Seq[Modification] = synchronized {
    planned match {
      case Some((same, modifications)) if same == batch => modifications
      case former =>
        if (ledger.isEmpty) ledger = Some(if (folder.exists) folder.read() else Ledger())
        bind(batch, firstOfRun = former.isEmpty)
        val modifications = ledger.get.inForce(batch)
        planned = Some((batch, modifications))
        modifications
    }
  }

  /** A run may plan its first batch for the second time: an earlier run may have planned it, without new records. */
  private def bind(batch: Long, firstOfRun: Boolean): Unit =
    ledger.get.bound(batch, number => !firstOfRun || folder.acceptedBefore(number, batch)).foreach {
      case (next, numbers) =>
        folder.bind(batch, numbers)
        ledger = Some(next)
        logInfo(s"query ${stream.id}: batch $batch is the first one with modifications ${numbers.mkString(", ")}")
    }

  /** Checks new records. Their first check needs a batch that has been planned. */
  def look(): Unit = {
    val execution = stream.lastExecution
    val known = synchronized(ledger.isDefined)
    if (known && execution != null && folder.exists) {
      val decided = folder.numbers("outcomes").toSet ++ refusedFiles
      folder.numbers("records").filterNot(decided).foreach(decide)
    }
  }

  private def decide(number: Long): Unit = {
    val refused =
      try { check(number); None }
      catch {
        case error: InterruptedException => throw error
        case NonFatal(error) => Some(reason(error))
      }
    refused match {
      case None => accept(number)
      case Some(reason) =>
        logWarning(s"query ${stream.id}: modification $number is refused: $reason")
        refusedFiles += number
        ModificationFolder.unlessThere(folder.refuse(number, reason))
    }
  }

  /** Under the lock of `at`: a record that counts for a batch was accepted before that batch was planned. */
  private def accept(number: Long): Unit = synchronized {
    if (ModificationFolder.unlessThere(folder.accept(number))) {
      val its = folder.record(number)
      ledger = ledger.map(now => now.copy(records = now.records + (number -> its), accepted = now.accepted + number))
      logInfo(s"query ${stream.id}: $its is accepted")
    }
  }

  private def check(number: Long): Unit = {
    if (stream.trigger.getClass.getSimpleName == "RealTimeTrigger") throw new IllegalArgumentException(
      "the query runs in real-time mode, whose batches take minutes, and Rhino does not modify it")
    val its = folder.record(number)
    val execution = stream.lastExecution
    val (former, pending) = synchronized((ledger.get.inForce(Long.MaxValue), ledger.get.ready))
    if (pending.exists(other => synchronized(ledger.get.records(other).slot) == its.slot)) throw
      new IllegalArgumentException(s"another modification of ${its.kind} ${its.target} waits for the next batch")
    val of = execution.sparkSession
    of.withActive(PlanCheck.check(its, execution.logical, former, of))
    if (its.kind == Modification.Function && !its.removes)
      CodeCheck.check(its.code, PlanCheck.functions(its.target, execution.logical).head, executors(), of)
  }

  /** The run has ended. If the batch that brought a modification has failed, the next run does without it. */
  def ended(): Unit = synchronized {
    for {
      error <- stream.exception
      now <- ledger
      (batch, _) <- planned
      failed <- now.failing(batch)
      if !folder.committed(failed)
    } {
      if (ModificationFolder.unlessThere(folder.giveUp(failed, reason(error))))
        logWarning(s"query ${stream.id}: batch $failed has failed, and its next run goes without the modifications " +
          s"${now.bindings(failed).mkString(", ")} that came with that batch")
    }
  }

  private def reason(error: Throwable): String =
    Option(error.getMessage).getOrElse(error.toString).take(ModifiedQuery.ReasonMax)
}

private[modify] object ModifiedQuery {
  private val ReasonMax = 4000 // characters; Spark's errors may carry whole plans
}
