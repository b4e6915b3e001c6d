package rhino.spark.driver

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

import rhino.spark.store.{StatePath, StoreId}
import rhino.spark.wire.Schema.{copy, message, Message}

/**
 * A running query, with the facts that the manager must know about it.
 *
 * @param stateful Rhino keeps its state
 * @param planned  false before the run's first batch, when its task groups are not known yet
 * @param nowNs    a monotonic clock, in nanoseconds
 */
private[spark] class FollowedQuery(
    val run: QueryRun, taskGroups: Seq[TaskGroup], val stateful: Boolean, val planned: Boolean, nowNs: () => Long)
  extends Logging {

  val job: String = run.job
  val runId: UUID = run.runId
  private val retained = run.retainedBatches
  private val FiguresMs = 1000L // from a commit to its progress, if Spark keeps any
  private case class Logged(batch: Long, versions: Seq[Message], sinceNs: Long)
  private var seen: AnyRef = _ // the commit after which the log was read
  private var waiting = Seq.empty[Logged] // for their figures
  private var newest = Option.empty[Message]
  private var reported = Option.empty[Long]
  private val idleCheck = new IdleCheck(nowNs)
  private val work = new NodeWork
  private var counted: AnyRef = _ // the execution whose plan is known to `work`

  // Earlier runs have reported the batches before this run. The first batch of this run may already be complete.
  private lazy val before = {
    val newest = run.executedBatch // read first, so that the progress of earlier batches is available
    (run.computedBatches :+ newest).min - 1
  }

  def started: Message = message(
    "QueryStarted",
    "job" -> job,
    "run_id" -> runId.toString,
    "name" -> run.name,
    "task_groups" -> taskGroups.map(_.message),
    "unplanned" -> java.lang.Boolean.valueOf(!planned),
    "location" -> run.checkpoint,
    "temporary" -> java.lang.Boolean.valueOf(run.isTemporary))

  /** The versions of all stores that the commit log names for a batch. None when the batch is not logged. */
  private def versions(batch: Long): Option[Seq[Message]] =
    if (batch < 0) None
    else run.committedIds(batch).map { operators =>
      for {
        (operator, partitions) <- operators.toSeq
        (ids, partition) <- partitions.zipWithIndex
        (id, name) <- ids.zip(StatePath.storeNames(ids.length))
      } yield StoreId(job, operator, partition, name).version(batch + 1, id)
    }

  /**
   * Reports of all batches in the commit log since the last call, in order. The log is read only after a commit. A
   * batch waits a moment for its progress, which has its figures. Spark may keep no progress.
   *
   * @param ended the query has ended, so that no figures will come
   */
  def logged(ended: Boolean = false): Seq[Message] = {
    if (!stateful || !planned) return Nil
    readLog()
    val (ready, rest) = waiting.span(its => ended || complete(its))
    val reports = ready.map(report)
    waiting = rest
    reported = ready.lastOption.map(_.batch).orElse(reported)
    newest = reports.lastOption.orElse(newest)
    if (reports.nonEmpty) idleCheck.batchLogged()
    reports
  }

  private def readLog(): Unit = {
    val commit = run.lastCommit // read first: a later commit is seen at the next call
    if (commit ne seen) {
      val last = waiting.lastOption.map(_.batch).orElse(reported).getOrElse(before)
      waiting ++= (last + 1 to run.executedBatch).flatMap { batch =>
        versions(batch).map(Logged(batch, _, nowNs()))
      }
      seen = commit
    }
  }

  /** The newest batch that was reported. */
  def newestBatch: Option[Long] = reported

  private def complete(its: Logged): Boolean =
    run.computedBatches.exists(_ >= its.batch) || run.executedBatch > its.batch ||
      nowNs() - its.sinceNs >= FiguresMs * 1000000L

  /**
   * Reports once per map that the query is idle: no batch has been reported for a while, none is running, and the next
   * one will use that map.
   *
   * Spark asks for locations only after it has logged the offsets of a batch. If every batch in the offset log is also
   * in the commit log, any later batch sees the present map. The newest batch of this run must have been reported,
   * because its commit is logged some time before its progress is available. In real-time mode offsets are logged at
   * the end of a batch, so no query counts as idle.
   */
  def idle(locations: DesiredLocations): Option[Message] =
    if (!stateful || run.isRealTime) None
    else idleCheck.check(locations.followed(job))(idleNow(locations))
      .map(epoch => message("QueryIdle", "job" -> job, "run_id" -> runId.toString, "configuration_epoch" -> epoch))

  private def idleNow(locations: DesiredLocations): Boolean =
    try locations.reachable(job) && {
      val newest = run.newestOffsets
      newest.isDefined && newest == run.newestCommit &&
        (if (planned) newest.forall(_ <= reported.getOrElse(before)) else !run.hasExecution)
    }
    catch {
      case NonFatal(error) =>
        logWarning(s"Rhino cannot see whether query $job is idle; looking again later", error)
        false
    }

  /** Records tasks that have ended, of any query. If some are of the newest execution, its plan is already made. */
  def ended(tasks: Seq[EndedTask]): Unit = if (stateful && planned) {
    val execution = run.execution
    if (execution != null && (execution ne counted)) run.plan.foreach { plan =>
      counted = execution
      work.planned(PlanCounters.of(plan, taskGroups))
    }
    work.ended(tasks)
  }

  /**
   * The oldest versions that a restart may need. Spark deletes old entries of the commit log when it prepares the next
   * batch, which may be before this report is made. It restarts from entries that are there, so the next one counts.
   */
  private def floors(batch: Long): Seq[Message] =
    if (batch < retained) Nil
    else (batch - retained to batch).iterator.flatMap(versions).nextOption().getOrElse(Nil)

  private def report(its: Logged): Message = message(
    "BatchLogged",
    "job" -> job,
    "run_id" -> runId.toString,
    "batch_id" -> its.batch,
    "versions" -> its.versions,
    "floors" -> floors(its.batch).map(v => message("Floor", "version" -> v)),
    "work" -> work.take(),
    "input_rows" -> run.inputRows(its.batch),
    "batch_s" -> run.batchSeconds(its.batch),
    "trigger_s" -> run.triggerSeconds,
    "lags" -> run.lags(its.batch).map(_.report))

  /**
   * Events for a manager that was just connected. The report of the newest batch may have been lost, so it is repeated.
   */
  def introduction: Seq[(String, Message)] = {
    idleCheck.reset()
    val repeated = newest.map(report => copy(report, "repeated" -> java.lang.Boolean.TRUE))
    if (stateful) ("query_started" -> started) +: repeated.map("batch_logged" -> _).toSeq else Nil
  }

  def ended: Message = message("QueryEnded", "job" -> job, "run_id" -> runId.toString, "error" -> run.error)
}

/**
 * Decides when to check whether a query is idle. It does not check between the batches of a busy query. For a new map
 * it checks at once, then at growing intervals, and no more after the query was reported as idle.
 *
 * @param nowNs a monotonic clock, in nanoseconds
 */
private[spark] class IdleCheck(nowNs: () => Long) {
  private val AfterMs = 10000L // time without a batch
  private val FirstPauseMs = 1000L // between checks, which read the query checkpoint
  private val PauseMaxMs = 16000L
  private var idleAt = in(AfterMs) // at the earliest
  private var checkAt = in(0)
  private var pauseMs = FirstPauseMs
  private var map = Option.empty[(Long, Long)]
  private var reported = false

  private def in(ms: Long): Long = nowNs() + ms * 1000000L
  private def isOver(at: Long): Boolean = nowNs() - at >= 0

  def batchLogged(): Unit = { idleAt = in(AfterMs); reset() }

  /** Forgets the report, because the manager may have lost it. */
  def reset(): Unit = { reported = false; pauseMs = FirstPauseMs; checkAt = in(0) }

  /**
   * Returns the epoch of `newest`, a (generation, epoch), if a check is due, `idle` is true and it was not reported
   * yet. `idle` is asked only if a check is due.
   */
  def check(newest: Option[(Long, Long)])(idle: => Boolean): Option[Long] = {
    if (newest != map) { map = newest; reset() }
    if (reported || map.isEmpty || !isOver(idleAt) || !isOver(checkAt)) None
    else {
      checkAt = in(pauseMs)
      pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      reported = idle
      if (reported) map.map(_._2) else None
    }
  }
}
