package rhino.spark.driver

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId
import org.apache.spark.sql.execution.streaming.state.seam.StoreLocator

import rhino.spark.wire.Schema.{Fields, Message}

/**
 * The desired location of each virtual node: the manager's map, the live executors, and the query of each run. `active`
 * returns the runs of this driver.
 */
private[spark] class DesiredLocations(active: () => Seq[QueryRun]) extends StoreLocator {
  private case class Desired(generation: Long, epoch: Long, hosts: Map[(Int, Int), Seq[String]]) {
    def isOlderThan(other: Desired): Boolean =
      generation < other.generation || (generation == other.generation && epoch < other.epoch)
  }
  private case class Run(job: String, taskGroups: Map[Long, Int])

  private val desired = new ConcurrentHashMap[String, Desired]()
  private val runs = new ConcurrentHashMap[UUID, Run]()
  private val executors = new ConcurrentHashMap[String, String]() // executor id -> host
  private val withoutSidecar = ConcurrentHashMap.newKeySet[String]()

  /** Executor ids with their hosts. */
  def liveExecutors: Seq[(String, String)] = executors.asScala.toSeq

  def executorAdded(id: String, host: String): Unit = executors.put(id, host)
  def executorRemoved(id: String): Option[String] = {
    withoutSidecar.remove(id)
    Option(executors.remove(id))
  }

  /**
   * Records whether an executor reaches a sidecar. Without one it can neither load nor commit, so no task is sent
   * there.
   */
  def executorReaches(id: String, sidecar: Boolean): Unit =
    if (sidecar) withoutSidecar.remove(id) else withoutSidecar.add(id)

  def runEnded(runId: UUID): Unit = runs.remove(runId)

  /** Applies a DesiredLocations message, unless a newer one is known. */
  def update(message: Message): Unit = {
    val hosts = message.subs("locations").map { l => (l.int("task_group"), l.int("partition")) -> l.strings("hosts") }
    val next = Desired(message.long("generation"), message.long("configuration_epoch"), hosts.toMap)
    desired.merge(message.string("job"), next, (known, newer) => if (newer.isOlderThan(known)) known else newer)
  }

  /** The manager's generation and the configuration epoch of the current map. */
  def followed(job: String): Option[(Long, Long)] = Option(desired.get(job)).map(map => (map.generation, map.epoch))

  /** Whether every virtual node's first desired host has an executor with a sidecar, so that it will run there. */
  def reachable(job: String): Boolean = {
    val live = executors.asScala.collect { case (id, host) if !withoutSidecar.contains(id) => host }.toSet
    Option(desired.get(job)).exists(_.hosts.values.forall(_.headOption.exists(live)))
  }

  /** The first desired host that has an executor with a sidecar. */
  override def locate(id: StateStoreProviderId): Option[(String, String)] = for {
    run <- Option(runs.get(id.queryRunId)).orElse(planned(id.queryRunId))
    map <- Option(desired.get(run.job))
    group <- run.taskGroups.get(id.storeId.operatorId)
    hosts <- map.hosts.get((group, id.storeId.partitionId))
    location <- hosts.iterator.flatMap(host => executorOn(host, id.storeId.partitionId).map(host -> _)).nextOption()
  } yield location

  /**
   * Spark asks for locations of a run's first batch after planning it. So the plan exists, even if nothing follows it
   * yet.
   */
  private def planned(runId: UUID): Option[Run] = for {
    run <- active().find(_.runId == runId)
    if desired.containsKey(run.job)
    plan <- run.plan
  } yield {
    val found = Run(run.job, TaskGroup.of(plan).flatMap(g => g.operators.map(_ -> g.name)).toMap)
    runs.put(runId, found)
    found
  }

  /** Several executors on a host share its partitions. */
  private def executorOn(host: String, partition: Int): Option[String] = {
    val found = new java.util.TreeSet[String]()
    executors.forEach((executor, itsHost) =>
      if (itsHost == host && !withoutSidecar.contains(executor)) found.add(executor))
    val ids = found.toArray(Array.empty[String])
    if (ids.isEmpty) None else Some(ids(partition % ids.length))
  }
}
