package rhino.spark.store

import org.apache.hadoop.fs.Path

import rhino.spark.wire.Schema
import rhino.spark.wire.Schema.Message

/** Rhino's name of a store. Its files are below rhino:///job/operator/partition/store. */
private[rhino] case class StoreId(job: String, operator: Long, partition: Int, store: String) {

  override def toString: String = s"$job/$operator/$partition/$store"

  def root: String = s"rhino:///$this"

  def message: Message =
    Schema.message("StoreId", "job" -> job, "operator" -> operator, "partition" -> partition, "store" -> store)

  def version(version: Long, checkpointId: String): Message = Schema.message(
    "StoreVersion",
    "store" -> message,
    "version" -> Schema.message("Version", "version" -> version, "checkpoint_id" -> checkpointId))
}

private[rhino] object StoreId {

  /** Parses a rhino:/// path into the store and the name below its root ("" for the root). None for other paths. */
  def parse(path: Path): Option[(StoreId, String)] =
    path.toUri.getPath.stripPrefix("/").split('/').filter(_.nonEmpty).toList match {
      case job :: operator :: partition :: store :: rest if isNumber(operator) && isNumber(partition) =>
        Some((StoreId(job, operator.toLong, partition.toInt, store), rest.mkString("/")))
      case _ => None
    }

  /** Of an operator or partition: one that Int has. */
  private[store] def isNumber(text: String): Boolean = text.matches("[0-9]{1,9}")
}
