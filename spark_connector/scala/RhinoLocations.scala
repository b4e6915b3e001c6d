package org.apache.spark.sql.execution.streaming.state

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.rpc.{RpcCallContext, RpcEnv}
import org.apache.spark.scheduler.ExecutorCacheTaskLocation
import org.apache.spark.sql.internal.SQLConf

/** Where each virtual node should run: the manager's map, live executors, and which query a run belongs to. */
private[state] class RhinoLocations {
  import RhinoSchema._

  private case class Desired(generation: Long, epoch: Long, hosts: Map[(Int, Int), Seq[String]])
  private case class Run(job: String, taskGroups: Map[Long, Int])

  private val desired = new ConcurrentHashMap[String, Desired]()
  private val runs = new ConcurrentHashMap[UUID, Run]()
  private val executors = new ConcurrentHashMap[String, String]() // executor id -> host

  def executorAdded(id: String, host: String): Unit = executors.put(id, host)
  def executorRemoved(id: String): Option[String] = Option(executors.remove(id))

  def runEnded(runId: UUID): Unit = runs.remove(runId)

  /** Takes a DesiredLocations message unless a newer one is known. */
  def update(message: Message): Unit = {
    val hosts = message.subs("locations").map { l => (l.int("task_group"), l.int("partition")) -> l.strings("hosts") }
    val next = Desired(message.long("generation"), message.long("configuration_epoch"), hosts.toMap)
    desired.merge(message.string("job"), next, (old, newer) => {
      val outdated = newer.generation < old.generation ||
        (newer.generation == old.generation && newer.epoch < old.epoch)
      if (outdated) old else newer
    })
  }

  /** Manager's generation and configuration epoch of the map that is followed now. */
  def followed(job: String): Option[(Long, Long)] = Option(desired.get(job)).map(map => (map.generation, map.epoch))

  /** Whether the first desired host of every virtual node has a live executor: only then does it run there. */
  def reachable(job: String): Boolean = {
    val live = executors.values
    Option(desired.get(job)).exists(_.hosts.values.forall(_.headOption.exists(live.contains)))
  }

  /** Spark's task location of the first desired host with a live executor; None leaves it to Spark. */
  def locate(id: StateStoreProviderId): Option[String] = for {
    run <- Option(runs.get(id.queryRunId)).orElse(planned(id.queryRunId))
    map <- Option(desired.get(run.job))
    group <- run.taskGroups.get(id.storeId.operatorId)
    hosts <- map.hosts.get((group, id.storeId.partitionId))
    location <- hosts.iterator.flatMap(executorOn(_, id.storeId.partitionId)).nextOption()
  } yield location

  /** That Spark asks for the tasks of a run's first batch means that it is planned, whoever has followed the run so far. */
  private def planned(runId: UUID): Option[Run] = for {
    stream <- RhinoQueries.active.find(_.runId == runId)
    job = stream.id.toString
    if desired.containsKey(job)
    execution <- Option(stream.lastExecution)
  } yield {
    val run = Run(job, RhinoTaskGroup.of(execution.executedPlan).flatMap(g => g.operators.map(_ -> g.name)).toMap)
    runs.put(runId, run)
    run
  }

  private def executorOn(host: String, partition: Int): Option[String] = {
    val found = new java.util.TreeSet[String]()
    executors.forEach((executor, itsHost) => if (itsHost == host) found.add(executor))
    if (found.isEmpty) None
    else {
      val ids = found.toArray(Array.empty[String])
      Some(ExecutorCacheTaskLocation(host, ids(partition % ids.length)).toString)
    }
  }
}

/**
 * Spark's coordinator, except that "where is this store" is answered with where it should be (Rhino 4.1, the handover
 * marker of a micro-batch engine). Registered before Spark's own, which then finds the name taken and uses this one.
 */
private class RhinoStateStoreCoordinator(rpcEnv: RpcEnv, conf: SQLConf, locations: RhinoLocations)
  extends StateStoreCoordinator(rpcEnv, conf) {

  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    val spark = super.receiveAndReply(context)
    val desired: PartialFunction[Any, Unit] = {
      case request @ GetLocation(id) =>
        val location = locations.locate(id)
        if (location.isDefined) context.reply(location) else spark(request)
    }
    desired.orElse(spark)
  }
}
