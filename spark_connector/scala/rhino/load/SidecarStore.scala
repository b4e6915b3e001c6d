package rhino.spark.load

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreCustomSizeMetric, StateStoreCustomSumMetric, StateStoreCustomTimingMetric}
import org.apache.spark.sql.execution.streaming.state.seam.ReplicatedStore

import rhino.spark.store.StoreId

/** A store whose files are with the sidecar of this node. `counted`: whether loads appear in the query's progress. */
private[rhino] class SidecarStore(store: StoreId, counted: Boolean) extends ReplicatedStore {
  override def root: String = store.root
  override def whileLocal[T](version: Long, id: String)(load: => T): T =
    Versions.during(store, version, id, counted)(load)
  override def takeMetrics(): Map[StateStoreCustomMetric, Long] = StoreMetrics.take(store)
}

/** Rhino's metrics in StreamingQueryProgress, collected per store between two reports. */
private[rhino] object StoreMetrics {
  private val PrepareMs = StateStoreCustomTimingMetric("rhinoPrepareMs", "Rhino: time to make versions loadable")
  private val CommitMs = StateStoreCustomTimingMetric(
    "rhinoCommitMs", "Rhino: time until enough workers held a version")
  private val FetchedBytes = StateStoreCustomSizeMetric("rhinoFetchedBytes", "Rhino: state fetched from other workers")
  private val Local = StateStoreCustomSumMetric("rhinoPreparesLocal", "Rhino: loads from files written on the worker")
  private val Replica = StateStoreCustomSumMetric("rhinoPreparesReplica", "Rhino: loads from a replica on the worker")
  private val Remote = StateStoreCustomSumMetric("rhinoPreparesRemote", "Rhino: loads that fetched state")
  val all: Seq[StateStoreCustomMetric] = Seq(PrepareMs, CommitMs, FetchedBytes, Local, Replica, Remote)

  private val collected = new ConcurrentHashMap[StoreId, Map[StateStoreCustomMetric, Long]]()

  private def add(store: StoreId, values: (StateStoreCustomMetric, Long)*): Unit =
    collected.merge(store, values.toMap, (old, more) =>
      more.foldLeft(old) { case (sum, (metric, value)) => sum.updated(metric, sum.getOrElse(metric, 0L) + value) })

  def committed(store: StoreId, elapsedMs: Long): Unit = add(store, CommitMs -> elapsedMs)

  def prepared(store: StoreId, elapsedMs: Long, source: String, fetchedBytes: Long): Unit = {
    val counter = source match {
      case "SOURCE_REMOTE" => Some(Remote)
      case "SOURCE_REPLICA" => Some(Replica)
      case "SOURCE_LOCAL" => Some(Local)
      case _ => None
    }
    add(store, Seq(PrepareMs -> elapsedMs, FetchedBytes -> fetchedBytes) ++ counter.map(_ -> 1L): _*)
  }

  /**
   * Returns and resets the values since the last call. Contains every metric, because Spark sums them over partitions.
   */
  def take(store: StoreId): Map[StateStoreCustomMetric, Long] = {
    val found = Option(collected.remove(store)).getOrElse(Map.empty[StateStoreCustomMetric, Long])
    all.map(metric => metric -> found.getOrElse(metric, 0L)).toMap
  }
}
