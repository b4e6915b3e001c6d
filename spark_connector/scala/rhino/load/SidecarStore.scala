package rhino.spark.load

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import org.apache.spark.sql.execution.streaming.state.seam.ReplicatedStore

import rhino.spark.store.StoreId

/** A store whose files are with the sidecar of this node. `counted`: whether loads appear in the query's progress. */
private[rhino] class SidecarStore(store: StoreId, counted: Boolean) extends ReplicatedStore {
  override def root: String = store.root
  override def whileLocal[T](version: Long, id: String)(load: => T): T =
    Versions.during(store, version, id, counted)(load)
  override def takeMetrics(): Map[StateStoreCustomMetric, Long] = StoreMetrics.take(store)
}
