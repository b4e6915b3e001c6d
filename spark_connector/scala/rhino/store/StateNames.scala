package rhino.spark.store

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.state.StateStoreId

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

/** The facts in the name of a state file, which is relative to the root of its store. */
private[rhino] object StateFileName {
  private val Versioned = """(\d{1,18})_([^/]+)\.(?:changelog|zip)""".r
  private val Checksum = """.*\.crc(\.[^/]+\.tmp)?""".r
  private val OfMemoryProvider = """.*\.(delta|snapshot)""".r

  /** Version and checkpoint id of a changelog or snapshot in format 2. None for all other files. */
  def version(name: String): Option[(Long, String)] = name match {
    case Versioned(version, id) => Some(version.toLong -> id)
    case _ => None
  }

  def isChangelog(name: String): Boolean = name.endsWith(".changelog")

  /** Whether the file is one of Spark's file checksums (`checkpoint.fileChecksum.enabled`), finished or not. */
  def isChecksum(name: String): Boolean = Checksum.matches(name)

  def isTemporary(name: String): Boolean = name.endsWith(".tmp")

  /** Whether Spark's in-memory provider writes files of this name. */
  def isOfMemoryProvider(name: String): Boolean = OfMemoryProvider.matches(name)

  /** Files of stores have a dot in their names; folders have none. */
  def isFile(name: String): Boolean = name.contains(".")
}

/**
 * A path of state in a query checkpoint: <checkpoint>/state/<operator>/<partition>/[<store>/]<name>. `name` is "" for
 * the folder of the store.
 */
private[rhino] case class StatePath(checkpoint: String, operator: Long, partition: Int, store: String, name: String)

private[rhino] object StatePath {
  private val Joins = SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)
  private val Folders = Set("SSTs", "logs")
  private val File = """\.?\d+(_[^/]*)?\.(changelog|zip|delta|snapshot)\b.*""".r

  /** Names of an operator's stores, in the order of the ids in the commit log. */
  def storeNames(count: Int): Seq[String] = if (count == 1) Seq(StateStoreId.DEFAULT_STORE_NAME) else Joins

  /** Returns None for all paths that are not state, among them `_metadata`, which the driver writes. */
  def parse(path: Path): Option[StatePath] = {
    val parts = path.toUri.getPath.split('/').toIndexedSeq
    val at = parts.indices.findLast(i =>
      parts(i) == "state" && parts.isDefinedAt(i + 2) &&
        StoreId.isNumber(parts(i + 1)) && StoreId.isNumber(parts(i + 2)))
    at.flatMap { i =>
      val (store, below) = parts.drop(i + 3) match {
        case head +: rest if Joins.contains(head) => (head, rest)
        case rest => (StateStoreId.DEFAULT_STORE_NAME, rest)
      }
      if (!isState(below)) None
      else Some(StatePath(
        parts.take(i).mkString("/"), parts(i + 1).toLong, parts(i + 2).toInt, store, below.mkString("/")))
    }
  }

  private def isState(below: Seq[String]): Boolean = below match {
    case Seq() => true
    case Seq(name) => Folders(name) || File.matches(name)
    case Seq(folder, _) => Folders(folder)
    case _ => false
  }
}
