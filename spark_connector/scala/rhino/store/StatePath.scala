package rhino.spark.store

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

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
