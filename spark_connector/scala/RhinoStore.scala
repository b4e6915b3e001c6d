package org.apache.spark.sql.execution.streaming.state

import org.apache.hadoop.fs.Path

/** A store as Rhino names it. Its files lie below rhino:///job/operator/partition/store. */
private[state] case class RhinoStore(job: String, operator: Long, partition: Int, store: String) {
  import RhinoSchema._

  def root: String = s"rhino:///$job/$operator/$partition/$store"
  def relative: String = s"$job/$operator/$partition/$store"

  def message: Message = RhinoSchema.message(
    "StoreId", "job" -> job, "operator" -> operator, "partition" -> partition, "store" -> store)

  def version(version: Long, checkpointId: String): Message = RhinoSchema.message(
    "StoreVersion",
    "store" -> message,
    "version" -> RhinoSchema.message("Version", "version" -> version, "checkpoint_id" -> checkpointId))
}

private[state] object RhinoStore {

  /** The store and the name below its root ("" for the root itself) that a rhino:// path means, if it means one. */
  def parse(path: Path): Option[(RhinoStore, String)] =
    path.toUri.getPath.stripPrefix("/").split('/').filter(_.nonEmpty).toList match {
      case job :: operator :: partition :: store :: rest if isNumber(operator) && isNumber(partition) =>
        Some((RhinoStore(job, operator.toLong, partition.toInt, store), rest.mkString("/")))
      case _ => None
    }

  private def isNumber(text: String): Boolean = text.nonEmpty && text.forall(_.isDigit)
}
