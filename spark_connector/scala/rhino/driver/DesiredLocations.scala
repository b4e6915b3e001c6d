package rhino.spark.driver

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import com.codahale.metrics.Counter

import scala.collection.mutable
import scala.util.hashing.MurmurHash3

import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId
import org.apache.spark.sql.execution.streaming.state.seam.StoreLocator

import rhino.spark.wire.Schema.{Fields, Message}

/**
 * The desired location of each virtual node: the manager's map, the executors of each worker, and the query of each
 * run. `active` returns the runs of this driver. `look` finds executors that are leaving.
 */
private[spark] class DesiredLocations(active: () => Seq[QueryRun], executors: Executors, look: () => Unit = () => ())
  extends StoreLocator {
  private case class Desired(generation: Long, epoch: Long, workers: Map[(Int, Int), Seq[MapWorker]]) {
    def isOlderThan(other: Desired): Boolean =
      generation < other.generation || (generation == other.generation && epoch < other.epoch)
  }
  private case class Run(job: String, taskGroups: Map[Long, Int])

  /** The executor of each virtual node, for one map and the executors of one moment. */
  private case class Divided(map: Desired, usable: UsableExecutors, executor: Map[(Int, Int), String])

  private val desired = new ConcurrentHashMap[String, Desired]()
  private val divided = new ConcurrentHashMap[String, Divided]()
  private val runs = new ConcurrentHashMap[UUID, Run]()

  /** Virtual nodes that got another worker in a newer map: handovers, and losses of workers. */
  val moved = new Counter

  def runEnded(runId: UUID): Unit = runs.remove(runId)

  /** Applies a DesiredLocations message, unless a newer one is known. */
  def update(message: Message): Unit = {
    val table = message.subs("workers").map(w => MapWorker(w.string("worker_id"), w.string("host"))).toIndexedSeq
    val workers = message.subs("locations").map { l =>
      (l.int("task_group"), l.int("partition")) -> l.ints("worker_indexes").map(table)
    }
    val next = Desired(message.long("generation"), message.long("configuration_epoch"), workers.toMap)
    desired.merge(message.string("job"), next, (known, newer) =>
      if (newer.isOlderThan(known)) known
      else {
        moved.inc(newer.workers.count { case (node, its) =>
          known.workers.get(node).exists(_.headOption != its.headOption)
        })
        newer
      })
  }

  /** The first desired worker of the virtual nodes of a query, and its executors. */
  def places(job: String): Seq[Place] = Option(desired.get(job)).toSeq.flatMap { map =>
    val usable = executors.usable
    val nodes = map.workers.toSeq.flatMap { case (node, workers) => workers.headOption.map(_ -> node) }
    nodes.groupMap(_._1)(_._2).toSeq.sortBy(_._1.id).map { case (worker, its) =>
      val names = its.sorted.map { case (group, partition) => s"$group/$partition" }
      Place(worker.id, worker.host, usable.on(worker).toSeq.sorted, names)
    }
  }

  /** The manager's generation and the configuration epoch of the current map. */
  def followed(job: String): Option[(Long, Long)] = Option(desired.get(job)).map(map => (map.generation, map.epoch))

  /** Whether every virtual node's first desired worker has an executor with a sidecar, so that it will run there. */
  def reachable(job: String): Boolean = {
    val usable = executors.usable
    Option(desired.get(job)).exists(_.workers.values.forall(_.headOption.exists(usable.on(_).nonEmpty)))
  }

  /** An executor of the first desired worker that has one with a sidecar. */
  override def locate(id: StateStoreProviderId): Option[(String, String)] = for {
    run <- Option(runs.get(id.queryRunId)).orElse(planned(id.queryRunId))
    group <- run.taskGroups.get(id.storeId.operatorId)
    node = (group, id.storeId.partitionId)
    found <- located(run.job, node)
    its <- if (executors.isLeaving(found._2)) { look(); located(run.job, node) } else Some(found)
  } yield its

  private def located(job: String, node: (Int, Int)): Option[(String, String)] = for {
    its <- division(job)
    executor <- its.executor.get(node)
  } yield (its.usable.hostOf(executor), executor)

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

  /** The division among the present executors. It is made again when the map or the executors have changed. */
  private def division(job: String): Option[Divided] = Option(desired.get(job)).map { map =>
    val usable = executors.usable
    divided.compute(job, (_, known) =>
      if (known != null && (known.map eq map) && (known.usable eq usable)) known
      else divide(job, map, usable, Option(known).map(_.executor).getOrElse(Map.empty)))
  }

  private def divide(
      job: String, map: Desired, usable: UsableExecutors, former: Map[(Int, Int), String]): Divided = {
    val on = map.workers.values.flatten.toSet.map((worker: MapWorker) => worker -> usable.on(worker)).toMap
    val placed = map.workers.toSeq.sortBy(_._1).flatMap { case (node, workers) =>
      workers.map(on).find(_.nonEmpty).map(node -> _)
    }
    val executor = placed.groupMap(_._2)(_._1).flatMap { case (candidates, nodes) =>
      val names = nodes.map { case node @ (group, partition) => s"$job/$group/$partition" -> node }.toMap
      val chosen = Division.of(names.keys.toSeq.sorted, candidates, name => former.get(names(name)))
      chosen.map { case (name, executor) => names(name) -> executor }
    }
    Divided(map, usable, executor)
  }
}

/** Where virtual nodes of a query (`nodes`) are, or will be with the next batch. */
private[driver] case class Place(worker: String, host: String, executors: Seq[String], nodes: Seq[String])

/** Divides the virtual nodes of a worker among its executors. */
private[spark] object Division {

  /**
   * An executor for each of `nodes`, which are names of virtual nodes. No executor gets more than its share, which is
   * rounded up. A node stays where it was (`former`) as far as the shares allow. So the loss of an executor moves only
   * its own nodes, and a new one takes no more than its share. Other nodes go to the executor with the highest hash of
   * node and executor that has room (rendezvous hashing with bounded loads).
   */
  def of(nodes: Seq[String], executors: Seq[String], former: String => Option[String]): Map[String, String] =
    if (executors.size == 1) nodes.map(_ -> executors.head).toMap else shared(nodes, executors, former)

  private def shared(
      nodes: Seq[String], executors: Seq[String], former: String => Option[String]): Map[String, String] = {
    val share = (nodes.size + executors.size - 1) / executors.size
    val room = mutable.Map.from(executors.map(_ -> share))
    val chosen = mutable.Map.empty[String, String]
    def choose(node: String, executor: String): Unit = {
      chosen.put(node, executor)
      room(executor) -= 1
    }
    val before = for (node <- nodes; executor <- former(node) if room.contains(executor)) yield
      (-hash(node, executor), node, executor)
    before.sorted.foreach { case (_, node, executor) => if (room(executor) > 0) choose(node, executor) }
    nodes.filterNot(chosen.contains).foreach { node =>
      choose(node, executors.filter(room(_) > 0).maxBy(executor => (hash(node, executor), executor)))
    }
    chosen.toMap
  }

  private def hash(node: String, executor: String): Long = MurmurHash3.stringHash(s"$node/$executor").toLong
}
