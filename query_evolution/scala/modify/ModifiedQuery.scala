package rhino.spark.modify

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.modify.checks.{CodeCheck, JarCheck, PlanCheck, StateVariables, TableReader}
import rhino.spark.modify.comparison.OldAgainstNew
import rhino.spark.modify.records.{Canary, Figures, Ledger, Modification, ModificationFolder, StaticTable}

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
  private val sampled = mutable.Map.empty[Long, IncrementalExecution] // by dry run, the batch whose rows it compares
  private var ledger = Option.empty[Ledger] // read when the run plans its first batch
  private var planned = Option.empty[(Long, Seq[Modification])]
  private var firstBatch = Option.empty[Long] // of this run

  def isLocal: Boolean = folder.isLocal

  /** What the batch must be planned with. Binds what is ready before it returns. The same answer for each try. */
  def at(batch: Long): Seq[Modification] = synchronized {
    planned match {
      case Some((same, modifications)) if same == batch => modifications
      case former =>
        if (ledger.isEmpty) ledger = Some(if (folder.exists) folder.read() else Ledger())
        former.foreach { case (committed, _) => judge(committed, next = batch) }
        if (former.isEmpty) firstBatch = Some(batch)
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
        folder.bind(batch, numbers.map(next.records), ledger.get.replaced(numbers))
        ledger = Some(next)
        logInfo(s"query ${stream.id}: batch $batch is the first one with modifications ${numbers.mkString(", ")}")
    }

  /**
   * A batch has been committed: it is judged before the next one is planned. A return decides about batches that no run
   * has planned yet. It is written before the figures, which may end the canary.
   */
  private def judge(batch: Long, next: Long): Unit = {
    val trials = ledger.get.trials(batch)
    if (trials.nonEmpty) figures(batch).foreach { figures =>
      trials.foreach { case (bound, its) =>
        its.canary.flatMap(_.broken(figures)).foreach { limit =>
          giveUp(bound, next, s"batch $batch broke a limit of the canary of modification ${its.number}: $limit")
        }
      }
      val left = trials.map { case (_, its) => its.number -> (ledger.get.left(its.number, its.canary.get) - 1) }.toMap
      if (ModificationFolder.unlessThere(folder.judge(batch, figures, left))) // of a rewound batch, they are there
        ledger = ledger.map(now => now.copy(judged = now.judged + (batch -> left)))
    }
  }

  private def figures(batch: Long): Option[Figures] =
    stream.recentProgress.filter(its => its.batchId == batch && its.durationMs.containsKey("addBatch")).lastOption.map {
      its =>
        val rows = its.observedMetrics.asScala.toMap.collect {
          case (point, row) if row.schema.fieldNames.contains(Canary.Rows) && row.getAs[Any](Canary.Rows) != null =>
            point -> row.getAs[Number](Canary.Rows).longValue
        }
        Figures(its.batchDuration, timed = !firstBatch.contains(batch), rows)
    }

  private def giveUp(bound: Long, from: Long, reason: String): Unit =
    if (ledger.exists(!_.returned.contains(bound)) &&
        ModificationFolder.unlessThere(folder.giveUp(bound, from, reason))) {
      val numbers = ledger.get.bindings(bound).mkString(", ")
      ledger = ledger.map(now => now.copy(returned = now.returned + (bound -> from)))
      logWarning(s"query ${stream.id}: from batch $from on it goes without the modifications $numbers: $reason")
    }

  /** Checks new records against the newest batch that was planned. */
  def look(): Unit =
    if (stream.lastExecution != null && synchronized(ledger.isDefined)) {
      lazy val decided = folder.numbers("outcomes").toSet ++ refusedFiles // most queries have no records
      val due = folder.numbers("records").filterNot(decided(_)).filterNot(waits)
      Internals.withArtifacts(stream)(due.foreach(decide)) // its code may import what a client has added
    }

  /** A dry run that compares waits for the end of the batch that it finds. Its rows are read again then. */
  private def waits(number: Long): Boolean =
    recordIf(number).exists(_.sample.nonEmpty) &&
      !folder.committed(sampled.getOrElseUpdate(number, stream.lastExecution).currentBatchId)

  /** None for a record that is not readable: `decide` refuses it. */
  private def recordIf(number: Long): Option[Modification] = Try(folder.record(number)).toOption

  private def decide(number: Long): Unit = {
    val started = System.nanoTime()
    val found =
      try Right(kept(checked(number)))
      catch {
        case error: InterruptedException => throw error
        case NonFatal(error) => Left(reason(error))
      }
    found match {
      case Right(its) =>
        sampled.remove(number).foreach(compare(its, _))
        accept(its, started)
      case Left(reason) =>
        logWarning(s"query ${stream.id}: modification $number is refused: $reason")
        refusedFiles += number
        sampled.remove(number)
        ModificationFolder.unlessThere(folder.refuse(number, reason))
    }
  }

  /** Under the lock of `at`: a record that counts for a batch was accepted before that batch was planned. */
  private def accept(its: Modification, started: Long): Unit = synchronized {
    if (ModificationFolder.unlessThere(folder.accept(its))) {
      ledger = ledger.map(now =>
        now.copy(records = now.records + (its.number -> its), accepted = now.accepted + its.number))
      val ms = (System.nanoTime() - started) / 1000000
      logInfo(s"query ${stream.id}: $its is accepted, $ms ms after it was found")
    }
  }

  private def checked(number: Long): Modification = {
    if (stream.trigger.getClass.getSimpleName == "RealTimeTrigger") throw new IllegalArgumentException(
      "the query runs in real-time mode, whose batches take minutes, and Rhino does not modify it: " +
        "start it with trigger(processingTime=...)")
    val execution = stream.lastExecution
    val (of, plan) = (execution.sparkSession, execution.logical)
    val its = of.withActive(JarCheck.fitted(withTable(folder.record(number), of), plan))
    val now = synchronized(ledger.get)
    val former = now.inForce(Long.MaxValue)
    if (now.ready.exists(other => now.records(other).slot == its.slot)) throw new IllegalArgumentException(
      s"another modification of ${its.kind} ${its.target} waits for the next batch")
    if (!its.removes && now.trials(Long.MaxValue).exists(_._2.slot == its.slot)) throw new IllegalArgumentException(
      s"the canary of another modification of ${its.kind} ${its.target} still runs: wait for it, or remove that one")
    def checkPlan(): Unit = of.withActive(PlanCheck.check(its, execution, former))
    val replaces = its.kind == Modification.Function && !its.removes && its.jar.isEmpty
    val present = if (replaces) PlanCheck.functions(its.target, plan).headOption else None
    val code = present.map(CodeCheck.replacing(its.code, _)).toSeq ++ CodeCheck.inserted(its, plan, of)
    if (its.jar.nonEmpty) of.withActive(JarCheck.check(its, plan, executors(), of)(checkPlan()))
    else if (code.isEmpty) checkPlan()
    else CodeCheck.check(code, executors(), of)(checkPlan())
    present.foreach(StateVariables.check(its, _, of))
    its
  }

  /** The table of a join is read once. If a driver has ended after it had written it, that one counts. */
  private def withTable(its: Modification, session: SparkSession): Modification = its.join match {
    case Some(join) if !its.removes && !folder.hasTable(its.number) =>
      its.withTable(StaticTable.of(TableReader.read(join.source, session)))
    case _ => its
  }

  /** An accepted join has its table beside the record. A failure of that is a reason to refuse it. */
  private def kept(its: Modification): Modification =
    if (its.join.isEmpty || its.removes || its.dryRun || folder.hasTable(its.number)) its else folder.keepTable(its)

  private def compare(its: Modification, batch: IncrementalExecution): Unit = {
    val inForce = synchronized(ledger.get).inForce(batch.currentBatchId)
    val answer = OldAgainstNew.answer(its, batch, inForce)
    try ModificationFolder.unlessThere(folder.answer(its.number, answer))
    catch {
      case NonFatal(error) => // the checks have passed, and would be repeated for ever
        logWarning(s"query ${stream.id}: the answer to dry run ${its.number} cannot be written", error)
    }
  }

  /** The run has ended. If a batch that a modification is tried with has failed, the next run does without it. */
  def ended(): Unit = synchronized {
    for {
      error <- stream.exception
      now <- ledger
      (batch, _) <- planned
      bound <- now.failing(batch)
      if !folder.committed(batch)
    } giveUp(bound, batch, reason(error))
  }

  private def reason(error: Throwable): String = {
    val text = error match {
      case its: AnalysisException => its.getSimpleMessage // without its plan
      case other => Option(other.getMessage).getOrElse(other.toString)
    }
    text.take(ModifiedQuery.ReasonMax)
  }
}

private[modify] object ModifiedQuery {
  private val ReasonMax = 4000 // characters; Spark's errors may carry whole plans
}
