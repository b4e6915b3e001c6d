package rhino.spark.driver

import java.util.UUID

import scala.collection.concurrent.TrieMap
import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.sparkproject.connect.protobuf.ByteString

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.SparkPlan

import rhino.spark.restart.Restarts
import rhino.spark.settings.IntegrationMode
import rhino.spark.wire.Schema.{message, Message}

/**
 * Follows the driver's streaming queries: new ones, logged batches, ended ones.
 *
 * @param active returns the runs of this driver
 * @param tasks  returns the tasks that have ended since the last call
 * @param wanted the state store provider in the application's configuration
 * @param send   sends an event to the manager
 * @param nowNs  a monotonic clock, in nanoseconds
 */
private[spark] class QueryFollower(
    active: () => Seq[QueryRun], locations: DesiredLocations, tasks: () => Seq[EndedTask], wanted: String,
    send: Message => Unit, nowNs: () => Long = () => System.nanoTime()) extends Logging {

  private val PollMs = 25L
  private val FailurePauseMs = 1000L
  private val running = mutable.LinkedHashMap.empty[UUID, FollowedQuery]
  private val refused = TrieMap.empty[UUID, String] // the session's thread also adds to it
  private val pauses = new FailurePauses(nowNs)
  @volatile private var stopped = false
  @volatile var archived = false // the manager wants the files of the checkpoint when a query ends
  private val thread = new Thread(() => follow(), "rhino-queries")
  thread.setDaemon(true)

  def start(): Unit = thread.start()
  def stop(): Unit = { stopped = true; thread.interrupt() }

  /** The first events for a manager that was just connected. */
  def introductions(): Seq[Message] =
    synchronized(running.values.toSeq.filterNot(query => refused.contains(query.runId)).flatMap(_.introduction)
      .map { case (kind, event) => wrapped(kind, event) })

  /** The manager refuses a run: another driver runs its job, or its checkpoint is a copy. */
  def refuse(runId: UUID, reason: String): Unit = {
    logError(s"Rhino ends run $runId of a query: $reason")
    refused.put(runId, reason)
  }

  private def wrapped(kind: String, event: Message): Message = message("DriverEvent", kind -> event)
  private def tell(kind: String, event: Message): Unit = send(wrapped(kind, event))

  private def follow(): Unit =
    while (!stopped) {
      try {
        poll()
        Thread.sleep(PollMs)
      } catch {
        case _: InterruptedException => stopped = true
        case NonFatal(error) =>
          logWarning("Rhino could not follow the streaming queries; trying again", error)
          Thread.sleep(FailurePauseMs)
      }
    }

  /** Looks at all queries before it returns, unless that fails: then the next regular look is not far. */
  def lookNow(): Unit =
    try poll()
    catch { case NonFatal(error) => logWarning("Rhino could not look at the streaming queries", error) }

  /** What of a query's checkpoint belongs to a batch. Reads it, which takes its time. */
  def checkpoint(job: String, batch: Long): Message = {
    val run = synchronized(running.values.find(its => its.job == job && its.stateful).map(_.run))
    val read =
      try {
        val files = run.getOrElse(throw new IllegalStateException("the query has ended")).checkpointFiles(batch)
        Seq("files" -> files.map { case (path, data) =>
          message("CheckpointFile", "path" -> path, "data" -> ByteString.copyFrom(data))
        })
      } catch { case NonFatal(error) => Seq("error" -> error.toString) }
    wrapped("checkpoint", message("CheckpointRead", Seq("job" -> job, "batch_id" -> batch) ++ read: _*))
  }

  /** One look at all queries. Handles ended runs first, because the next run of a query may already be active. */
  def poll(): Unit = synchronized {
    val runs = active()
    val ids = runs.map(_.runId).toSet
    val done = tasks()
    refused --= refused.keySet.toSet -- ids
    pauses.retain(ids) // an ended run is looked at for the last time, also if it was paused
    (running.keySet.toSet -- ids).flatMap(running.get).foreach { query =>
      try pauses.attempt(query.run)(follow(query, done, ended = true))
      finally end(query)
    }
    runs.foreach { run =>
      pauses.attempt(run)(begin(run))
      refused.get(run.runId).foreach(run.cancel)
    }
    running.values.foreach(query => pauses.attempt(query.run) {
      follow(query, done, ended = false)
      query.idle(locations).foreach(tell("query_idle", _))
    })
  }

  private def follow(query: FollowedQuery, done: Seq[EndedTask], ended: Boolean): Unit = {
    if (done.nonEmpty) query.ended(done)
    query.logged(ended).foreach(tell("batch_logged", _))
  }

  private def end(query: FollowedQuery): Unit = {
    locations.runEnded(query.runId)
    if (archived && query.stateful) query.newestBatch.foreach(batch => send(checkpoint(query.job, batch)))
    running.remove(query.runId)
    if (query.stateful) tell("query_ended", query.ended)
  }

  private def begin(run: QueryRun): Unit =
    if (!running.get(run.runId).exists(_.planned)) {
      if (run.hasExecution) run.plan.foreach(planned(run, _))
      else if (!running.contains(run.runId) && !run.endsItself) unplanned(run)
    }

  private def planned(run: QueryRun, plan: SparkPlan): Unit = {
    val groups = TaskGroup.of(plan)
    val mode = modeOf(run)
    if (groups.nonEmpty) mode.refusal.foreach(refuse(run.runId, _))
    if (groups.nonEmpty && !mode.served) logInfo(s"Rhino does not keep the state of query ${run.job}: ${mode.name}")
    val query = new FollowedQuery(run, groups, stateful = mode.served && groups.nonEmpty, planned = true, nowNs)
    val former = running.put(run.runId, query)
    if (query.stateful) tell("query_started", query.started)
    else former.filter(_.stateful).foreach(query => tell("query_ended", query.ended))
  }

  /**
   * The manager knows the state of the former run. So a query without new data can be handed over, and one with data
   * gets its map while its first batch is planned, before Spark asks for the locations of that batch. Runs that end by
   * themselves may be over before they plan a batch.
   */
  private def unplanned(run: QueryRun): Unit = {
    val query = new FollowedQuery(run, Nil, stateful = modeOf(run).served && run.hadState, planned = false, nowNs)
    running.put(run.runId, query)
    if (query.stateful) tell("query_started", query.started)
  }

  private def modeOf(run: QueryRun): IntegrationMode =
    IntegrationMode.of(
      run.providerClass, new Path(run.checkpoint), if (Restarts.isRehearsal(run.checkpoint)) "" else wanted)
}

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
