package rhino.spark

import rhino.spark.driver.{DesiredLocations, EndedTask, Executors, QueryFollower, QueryRun}
import rhino.spark.settings.ClassNames
import rhino.spark.wire.Schema.{message, Message}

/** A follower of runs that the test plays, and the events that it has sent. */
private[spark] class Followed(initial: QueryRun*) {
  var runs: Seq[QueryRun] = initial
  var tasks: Seq[EndedTask] = Nil
  private var nowMs = 0L
  private var sent = Seq.empty[Message]
  private val executors = new Executors
  private val locations = new DesiredLocations(() => runs, executors)
  val follower = new QueryFollower(
    () => runs, locations, () => tasks, ClassNames.Provider, m => sent :+= m, () => nowMs * 1000000L)

  /** The manager wants everything on host a, where an executor is. */
  def wanting(job: String): this.type = {
    executors.added("1", "a")
    locations.update(message(
      "DesiredLocations", "job" -> job, "generation" -> 1L, "configuration_epoch" -> 7L,
      "locations" -> Seq(message("Location", "task_group" -> 0, "partition" -> 0, "worker_indexes" -> Seq(0))),
      "workers" -> Seq(message("DesiredWorker", "worker_id" -> "a", "host" -> "a"))))
    this
  }

  /** Looks again after a time without batches that is long enough for an idle query. */
  def lookLater(): Seq[Message] = { nowMs += 20000; look() }

  /** Looks at the queries. Returns the events that were sent. */
  def look(): Seq[Message] = {
    sent = Nil
    follower.poll()
    sent
  }
}
