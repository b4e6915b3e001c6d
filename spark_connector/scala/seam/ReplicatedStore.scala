package org.apache.spark.sql.execution.streaming.state
package seam

/** A store whose files are with Rhino, as far as Spark's classes must know it. */
trait ReplicatedStore {

  /** The path that takes the place of the store's folder in the query checkpoint. */
  def root: String

  /** Runs `load` while all files of the version are on this node and stay there. */
  def whileLocal[T](version: Long, id: String)(load: => T): T

  /** Rhino's metrics of the store since the last call. */
  def takeMetrics(): Map[StateStoreCustomMetric, Long]
}
