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
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, StreamExecution}
import org.apache.spark.sql.streaming.StreamingQueryProgress

/** A query as it runs: what the manager must know of it. `stateful`: Rhino keeps its state. `planned`: false before the
  * first batch of the run, when its task groups are not known yet.
  */
private[state] class RhinoQuery(
    val stream: StreamExecution, taskGroups: Seq[RhinoTaskGroup], val stateful: Boolean, val planned: Boolean)
  extends Logging {
  import RhinoSchema._

  val job: String = stream.id.toString
  val runId: UUID = stream.runId
  private val session = stream.sparkSession.asInstanceOf[SparkSession]
  private lazy val commits = new CommitLog(session, RhinoQuery.log(stream, "commits").toString)
  private lazy val offsets = new OffsetSeqLog(session, RhinoQuery.log(stream, "offsets").toString)
  private val retained = session.sessionState.conf.minBatchesToRetain
  private var seen: StreamingQueryProgress = _
  private var newest: Option[Message] = None
  private val work = new RhinoWork(taskGroups)
  // Batches before this run have been reported by the run that made them; the first of this one may be over already.
  private lazy val before = {
    val newest = stream.lastExecution.currentBatchId // first: the progress of those before it is there
    (stream.recentProgress.filter(_.durationMs.containsKey("addBatch")).map(_.batchId) :+ newest).min - 1
  }
  private var reported = Option.empty[Long]
  private val quiet = new RhinoQuiet
  private val realTime = stream.trigger.getClass.getSimpleName == "RealTimeTrigger" // Spark 4.2 has no such class

  def started: Message = message(
    "QueryStarted",
    "job" -> job,
    "run_id" -> runId.toString,
    "name" -> Option(stream.name).getOrElse(""),
    "task_groups" -> taskGroups.map(_.message),
    "unplanned" -> java.lang.Boolean.valueOf(!planned))

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
    if (!stateful || !planned) return Nil
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
    * log, whatever begins later sees the map of now. The newest batch of this run must have been reported: its commit is
    * logged some time before its progress is there. In real-time mode offsets are logged at a batch's end.
    */
  def idle(locations: RhinoLocations): Option[Message] =
    if (!stateful || realTime) None
    else quiet.look(locations.followed(job))(idleNow(locations))
      .map(epoch => message("QueryIdle", "job" -> job, "run_id" -> runId.toString, "configuration_epoch" -> epoch))

  private def idleNow(locations: RhinoLocations): Boolean =
    try locations.reachable(job) && {
      val newest = offsets.getLatestBatchId()
      newest.isDefined && newest == commits.getLatestBatchId() &&
        (if (planned) newest.forall(_ <= reported.getOrElse(before)) else stream.lastExecution == null)
    }
    catch {
      case NonFatal(error) =>
        logWarning(s"Rhino cannot see whether query $job is idle; looking again later", error)
        false
    }

  /** Tasks that have ended, of whatever query. */
  def ended(tasks: Seq[RhinoTask]): Unit = if (stateful && planned) work.ended(tasks, stream.lastExecution)

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

private[state] object RhinoQuery {
  private def log(stream: StreamExecution, name: String): Path = new Path(new Path(stream.resolvedCheckpointRoot), name)

  /** Whether the newest batch that a former run has logged had state. Makes no folder, as the log itself does. */
  def hadState(stream: StreamExecution): Boolean = {
    val session = stream.sparkSession.asInstanceOf[SparkSession]
    val path = log(stream, "commits")
    path.getFileSystem(session.sessionState.newHadoopConf()).exists(path) &&
      new CommitLog(session, path.toString).getLatest().exists(_._2.stateUniqueIds.exists(_.nonEmpty))
  }
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
  private val UnseenMs = 10000L
  private val running = mutable.LinkedHashMap.empty[UUID, RhinoQuery]
  private val refused = mutable.Map.empty[UUID, String]
  private val unseen = mutable.Map.empty[UUID, Long] // when to look again
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

  /** Those that are gone come first: the next run of a query may be there already. */
  private def poll(): Unit = {
    val active = RhinoQueries.active
    val done = tasks.take()
    val gone = running.keySet.toSet -- active.map(_.runId)
    unseen --= unseen.keySet.toSet -- active.map(_.runId)
    gone.flatMap(running.get).foreach { query =>
      try follow(query, done)
      finally end(query)
    }
    active.foreach { stream =>
      begin(stream)
      endRefused(stream)
    }
    running.values.foreach { query =>
      follow(query, done)
      query.idle(locations).foreach(m => send(wrap("query_idle", m)))
    }
  }

  private def follow(query: RhinoQuery, done: Seq[RhinoTask]): Unit = {
    if (done.nonEmpty) query.ended(done)
    query.logged().foreach(m => send(wrap("batch_logged", m)))
  }

  private def end(query: RhinoQuery): Unit = {
    locations.runEnded(query.runId)
    refused.remove(query.runId)
    running.remove(query.runId)
    if (query.stateful) send(wrap("query_ended", query.ended))
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
    if (!running.get(stream.runId).exists(_.planned)) {
      Option(stream.lastExecution) match {
        case Some(execution) => planned(stream, execution)
        case None => if (waits(stream) && unseen.get(stream.runId).forall(System.nanoTime() - _ >= 0)) unplanned(stream)
      }
    }

  /** The first trigger of the run is over, and there was no data. One that ends then is of no concern. */
  private def waits(stream: StreamExecution): Boolean =
    stream.lastProgress != null && !running.contains(stream.runId) &&
      !RhinoQueries.EndingTriggers.exists(stream.trigger.getClass.getSimpleName.startsWith)

  private def planned(stream: StreamExecution, execution: IncrementalExecution): Unit = {
    val groups = RhinoTaskGroup.of(execution.executedPlan)
    val way = wayOf(stream, execution.sparkSession)
    if (groups.nonEmpty) way.refusal.foreach(refuse(stream, _))
    if (groups.nonEmpty && !way.served) logInfo(s"Rhino does not keep the state of query ${stream.id}: ${way.name}")
    val query = new RhinoQuery(stream, groups, stateful = way.served && groups.nonEmpty, planned = true)
    val former = running.put(stream.runId, query)
    if (query.stateful) send(wrap("query_started", query.started))
    else former.filter(_.stateful).foreach(query => send(wrap("query_ended", query.ended)))
  }

  /** What the former run had is known to the manager: a query without new data can be handed over. */
  private def unplanned(stream: StreamExecution): Unit =
    try {
      val stateful = wayOf(stream, stream.sparkSessionForStream).served && RhinoQuery.hadState(stream)
      val query = new RhinoQuery(stream, Nil, stateful, planned = false)
      running.put(stream.runId, query)
      if (stateful) send(wrap("query_started", query.started))
    } catch {
      case NonFatal(error) =>
        logWarning(s"Rhino cannot see the former state of query ${stream.id}; looking again later", error)
        unseen.put(stream.runId, System.nanoTime() + UnseenMs * 1000000L)
    }

  private def wayOf(stream: StreamExecution, session: SparkSession): RhinoWay =
    RhinoWay.of(session.sessionState.conf.stateStoreProviderClass, new Path(stream.resolvedCheckpointRoot), wanted)
}

private[state] object RhinoQueries {
  private val EndingTriggers = Seq("OneTimeTrigger", "AvailableNowTrigger") // in other packages, by version

  /** The driver's streaming queries. */
  def active: Seq[StreamExecution] =
    SparkSession.getDefaultSession.orElse(SparkSession.getActiveSession).toSeq.flatMap { session =>
      session.asInstanceOf[SparkSession].sharedState.activeStreamingQueries.asScala.values.collect {
        case stream: StreamExecution => stream
      }
    }
}
