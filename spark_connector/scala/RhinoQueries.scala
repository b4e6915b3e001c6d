package org.apache.spark.sql.execution.streaming.state

import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.JobExecutionStatus
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitLog, OffsetSeqLog}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.streaming.StreamingQueryProgress

/** A stateful query as it runs: what the manager must know of it. */
private[state] class RhinoQuery(val stream: StreamExecution, val taskGroups: Seq[RhinoTaskGroup])
  extends Logging {
  import RhinoSchema._

  val job: String = stream.id.toString
  val runId: UUID = stream.runId
  private val session = stream.sparkSession.asInstanceOf[SparkSession]
  private def log(name: String): String = new Path(new Path(stream.resolvedCheckpointRoot), name).toString
  private lazy val commits = new CommitLog(session, log("commits"))
  private lazy val offsets = new OffsetSeqLog(session, log("offsets"))
  private val retained = session.sessionState.conf.minBatchesToRetain
  private var seen: StreamingQueryProgress = _
  private var newest: Option[Message] = None
  private val work = new RhinoWork(taskGroups)
  // Batches before this run have been reported by the run that made them; the first of this one may be over already.
  private lazy val before =
    math.max(commits.getLatestBatchId().getOrElse(-1L) - (if (stream.lastProgress == null) 0L else 1L), -1L)
  private var reported = Option.empty[Long]
  private val quiet = new RhinoQuiet
  private val realTime = stream.trigger.getClass.getSimpleName == "RealTimeTrigger" // Spark 4.2 has no such class

  def stateful: Boolean = taskGroups.nonEmpty

  def started: Message = message(
    "QueryStarted",
    "job" -> job,
    "run_id" -> runId.toString,
    "name" -> Option(stream.name).getOrElse(""),
    "task_groups" -> taskGroups.map(_.message))

  /** Versions that the commit log names for a batch, for every store; None when the batch is not logged. */
  private def versions(batch: Long): Option[Seq[Message]] =
    if (batch < 0) None
    else commits.get(batch).map { metadata =>
      for {
        (operator, partitions) <- metadata.stateUniqueIds.getOrElse(Map.empty).toSeq
        (ids, partition) <- partitions.toSeq.zipWithIndex
        (id, name) <- ids.toSeq.zip(RhinoTaskGroup.storeNames(ids.length))
      } yield RhinoStore(job, operator, partition, name).version(batch + 1, id)
    }

  /**
   * Reports of the batches that the commit log has since the last call: in order, none left out. The log is read only
   * when there is a new progress, which an idle query makes rarely.
   */
  def logged(): Seq[Message] = {
    if (!stateful) return Nil
    val last = reported.getOrElse(before)
    val progress = stream.lastProgress
    if (progress == null || (progress eq seen)) return Nil
    val reports = (last + 1 to progress.batchId).flatMap(batch => versions(batch).map(named => batch -> report(batch, named)))
    seen = progress
    reported = reports.lastOption.map(_._1).orElse(Some(last))
    newest = reports.lastOption.map(_._2).orElse(newest)
    if (reports.nonEmpty) quiet.broken()
    reports.map(_._2)
  }

  /** Says once of each map, when no batch has been reported for a while, that none runs and the next one goes by it.
    * Where to run is asked for only after the offsets of a batch are logged: with none there that is not in the commit
    * log, whatever begins later sees the map of now. The newest batch must have been reported: its commit is logged some
    * time before its progress is there. In real-time mode offsets are logged at a batch's end.
    */
  def idle(locations: RhinoLocations): Option[Message] =
    if (!stateful || realTime) None
    else quiet.look(locations.followed(job))(idleNow(locations))
      .map(epoch => message("QueryIdle", "job" -> job, "run_id" -> runId.toString, "configuration_epoch" -> epoch))

  private def idleNow(locations: RhinoLocations): Boolean =
    try locations.reachable(job) && {
      val newest = offsets.getLatestBatchId()
      newest.isDefined && newest == commits.getLatestBatchId() && newest.forall(_ <= reported.getOrElse(before))
    }
    catch {
      case NonFatal(error) =>
        logWarning(s"Rhino cannot see whether query $job is idle; looking again later", error)
        false
    }

  /** Tasks that have ended, of whatever query. */
  def ended(tasks: Seq[RhinoTask]): Unit = if (stateful) work.ended(tasks, stream.lastExecution)

  private def report(batch: Long, named: Seq[Message]): Message = message(
    "BatchLogged",
    "job" -> job,
    "run_id" -> runId.toString,
    "batch_id" -> batch,
    "versions" -> named,
    "floors" -> versions(batch - retained).getOrElse(Nil).map(v => message("Floor", "version" -> v)),
    "work" -> work.take())

  /** What a manager that has just been reached must hear: the report of the newest batch may have been lost on the way. */
  def introduction: Seq[(String, Message)] = {
    quiet.forget()
    val repeated = newest.map(report => copy(report, "repeated" -> java.lang.Boolean.TRUE))
    if (stateful) ("query_started" -> started) +: repeated.map("batch_logged" -> _).toSeq else Nil
  }

  def ended: Message = message(
    "QueryEnded", "job" -> job, "run_id" -> runId.toString,
    "error" -> stream.exception.map(_.getMessage).getOrElse(""))
}

/** All stateful operators that Spark runs in one task: those of one stage, unless they are branches of a union. */
private[state] case class RhinoTaskGroup(operators: Seq[Long], partitions: Int) {
  def name: Int = operators.min.toInt
  def message: RhinoSchema.Message = RhinoSchema.message(
    "TaskGroup", "task_group" -> name, "operators" -> operators, "partitions" -> partitions)
}

private[state] object RhinoTaskGroup {

  /** Stores of an operator in the order of the ids in the commit log. */
  def storeNames(count: Int): Seq[String] =
    if (count == 1) Seq(StateStoreId.DEFAULT_STORE_NAME)
    else SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)

  /** Splits the plan at its exchanges; operators that share a stage share the task of each partition. Branches of a union
    * share a stage, but have tasks of their own, unless Spark has seen that all are partitioned alike.
    */
  def of(plan: SparkPlan): Seq[RhinoTaskGroup] = {
    val groups = mutable.Map.empty[Int, mutable.LinkedHashMap[Long, Int]]
    var stages = 0
    def visit(node: SparkPlan, stage: Int): Unit = {
      node match {
        case operator: StatefulOperator => operator.stateInfo.foreach { info =>
            groups.getOrElseUpdate(stage, mutable.LinkedHashMap.empty).put(info.operatorId, info.numPartitions)
          }
        case _ =>
      }
      node.children.foreach { child =>
        val below = if (separates(node)) { stages += 1; stages } else stage
        visit(child, below)
      }
    }
    visit(plan, 0)
    groups.values.map(g => RhinoTaskGroup(g.keys.toSeq.sorted, g.values.max)).toSeq.sortBy(_.name)
  }

  private def separates(node: SparkPlan): Boolean = node match {
    case _: Exchange => true
    case union: UnionExec => union.outputPartitioning.isInstanceOf[UnknownPartitioning]
    case _ => false
  }
}

/**
 * Follows the driver's streaming queries: new ones, logged batches, ended ones. `wanted`: the state store provider that
 * the application is configured with. `send` takes events of the driver session, `wrap` makes them.
 */
private[state] class RhinoQueries(
    locations: RhinoLocations, tasks: RhinoTasks, wanted: String, send: RhinoSchema.Message => Unit,
    wrap: (String, RhinoSchema.Message) => RhinoSchema.Message)
  extends Logging {
  private val PollMs = 25L
  private val running = mutable.LinkedHashMap.empty[UUID, RhinoQuery]
  private val refused = mutable.Map.empty[UUID, String]
  @volatile private var stopped = false
  private val thread = new Thread(() => follow(), "rhino-queries")
  thread.setDaemon(true)

  def start(): Unit = thread.start()
  def stop(): Unit = { stopped = true; thread.interrupt() }

  /** What a manager that has just been (re)connected must hear first. */
  def introductions(): Seq[RhinoSchema.Message] =
    synchronized(running.values.toSeq.flatMap(_.introduction).map { case (kind, event) => wrap(kind, event) })

  private def follow(): Unit =
    while (!stopped) {
      try {
        synchronized(poll())
        Thread.sleep(PollMs)
      } catch {
        case _: InterruptedException => stopped = true
        case NonFatal(error) =>
          logWarning("Rhino could not follow the streaming queries; trying again", error)
          Thread.sleep(1000)
      }
    }

  private def poll(): Unit = {
    val active = SparkSession.getDefaultSession.orElse(SparkSession.getActiveSession)
      .map(_.asInstanceOf[SparkSession].sharedState.activeStreamingQueries.asScala.values.toSeq).getOrElse(Nil)
    active.foreach {
      case stream: StreamExecution => begin(stream); endRefused(stream)
      case _ =>
    }
    val gone = running.keySet.toSet -- active.map(_.runId)
    val ended = tasks.take()
    if (ended.nonEmpty) running.values.foreach(_.ended(ended))
    running.values.foreach { query =>
      query.logged().foreach(m => send(wrap("batch_logged", m)))
      query.idle(locations).foreach(m => send(wrap("query_idle", m)))
    }
    gone.foreach { runId =>
      locations.runEnded(runId)
      refused.remove(runId)
      running.remove(runId).filter(_.stateful).foreach(query => send(wrap("query_ended", query.ended)))
    }
  }

  /** Ends a query whose state would not be safe; its checkpoint stays as it is. */
  private def refuse(stream: StreamExecution, reason: String): Unit = {
    logError(s"Rhino ends query ${stream.id}: $reason")
    refused.put(stream.runId, reason)
  }

  /** Cancels what a refused query runs now; the reason of a cancelled job is what its user gets to read. */
  private def endRefused(stream: StreamExecution): Unit = refused.get(stream.runId).foreach { reason =>
    val context = stream.sparkSession.sparkContext
    if (context.statusTracker.getJobIdsForGroup(stream.runId.toString).exists(id =>
        context.statusTracker.getJobInfo(id).exists(_.status() == JobExecutionStatus.RUNNING))) {
      context.cancelJobGroup(stream.runId.toString, reason)
    }
  }

  private def begin(stream: StreamExecution): Unit =
    if (!running.contains(stream.runId)) {
      Option(stream.lastExecution).foreach { execution =>
        val found = RhinoTaskGroup.of(execution.executedPlan)
        val provider = execution.sparkSession.sessionState.conf.stateStoreProviderClass
        val way = RhinoWay.of(provider, new Path(stream.resolvedCheckpointRoot), wanted)
        if (found.nonEmpty) way.refusal.foreach(refuse(stream, _))
        val groups = if (way.served) found else Nil
        if (groups.isEmpty && found.nonEmpty) logInfo(s"Rhino does not keep the state of query ${stream.id}: ${way.name}")
        val query = new RhinoQuery(stream, groups)
        running.put(stream.runId, query)
        if (groups.nonEmpty) {
          locations.runStarted(stream.runId, query.job, groups.flatMap(g => g.operators.map(_ -> g.name)).toMap)
          send(wrap("query_started", query.started))
        }
      }
    }
}
