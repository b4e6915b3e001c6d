package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.ConcurrentHashMap

/** Rhino's figures in StreamingQueryProgress, collected per store between two reports of its metrics. */
private[state] object RhinoMetrics {
  private val PrepareMs = StateStoreCustomTimingMetric("rhinoPrepareMs", "Rhino: time to make versions loadable")
  private val CommitMs = StateStoreCustomTimingMetric("rhinoCommitMs", "Rhino: time until enough workers held a version")
  private val FetchedBytes = StateStoreCustomSizeMetric("rhinoFetchedBytes", "Rhino: state fetched from other workers")
  private val Local = StateStoreCustomSumMetric("rhinoPreparesLocal", "Rhino: loads from files written on the worker")
  private val Replica = StateStoreCustomSumMetric("rhinoPreparesReplica", "Rhino: loads from a replica on the worker")
  private val Remote = StateStoreCustomSumMetric("rhinoPreparesRemote", "Rhino: loads that fetched state")
  val all: Seq[StateStoreCustomMetric] = Seq(PrepareMs, CommitMs, FetchedBytes, Local, Replica, Remote)

  private val collected = new ConcurrentHashMap[RhinoStore, Map[StateStoreCustomMetric, Long]]()

  private def add(store: RhinoStore, values: (StateStoreCustomMetric, Long)*): Unit =
    collected.merge(store, values.toMap, (old, more) =>
      more.foldLeft(old) { case (sum, (metric, value)) => sum.updated(metric, sum.getOrElse(metric, 0L) + value) })

  def committed(store: RhinoStore, elapsedMs: Long): Unit = add(store, CommitMs -> elapsedMs)

  def prepared(store: RhinoStore, elapsedMs: Long, source: String, fetchedBytes: Long): Unit = {
    val counter = source match {
      case "SOURCE_REMOTE" => Some(Remote)
      case "SOURCE_REPLICA" => Some(Replica)
      case "SOURCE_LOCAL" => Some(Local)
      case _ => None
    }
    add(store, Seq(PrepareMs -> elapsedMs, FetchedBytes -> fetchedBytes) ++ counter.map(_ -> 1L): _*)
  }

  /** What came together since the last call; every metric is there, so that sums over partitions work. */
  def take(store: RhinoStore): Map[StateStoreCustomMetric, Long] = {
    val found = Option(collected.remove(store)).getOrElse(Map.empty[StateStoreCustomMetric, Long])
    all.map(metric => metric -> found.getOrElse(metric, 0L)).toMap
  }
}
