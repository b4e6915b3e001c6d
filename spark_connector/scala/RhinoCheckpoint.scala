package org.apache.spark.sql.execution.streaming.state

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}

/**
 * Query checkpoints on one file system of the user's, as rhino:// names them: `authority` is "<scheme>[@<authority>]" of
 * it, so rhino://hdfs@namenode:8020/q is hdfs://namenode:8020/q and rhino://file/q is file:/q.
 */
private[state] class RhinoCheckpoint(val authority: String, conf: Configuration) {
  private val (scheme, itsAuthority) = authority.split("@", 2) match {
    case Array(scheme, rest) => (scheme, rest)
    case Array(scheme) => (scheme, null)
  }
  require(scheme != RhinoCheckpoint.Scheme, s"rhino://$authority: the scheme after rhino:// must be the one of your file " +
    "system, such as file or hdfs")

  /** The user's file system. */
  lazy val files: FileSystem = outside(new Path("/")).getFileSystem(conf)

  /** The same path as the user's file system names it. */
  def outside(path: Path): Path = new Path(scheme, itsAuthority, path.toUri.getPath)

  private def inside(path: Path): Path = new Path(RhinoCheckpoint.Scheme, authority, path.toUri.getPath)

  def status(path: Path): FileStatus = named(files.getFileStatus(outside(path)))
  def list(path: Path): Array[FileStatus] = files.listStatus(outside(path)).map(named)

  private def named(status: FileStatus): FileStatus = {
    status.setPath(inside(status.getPath))
    status
  }

  /** The store that a path of state means. */
  def storeOf(path: Path): RhinoStore = {
    val (root, store, _) = RhinoCheckpoint.split(path).getOrElse(throw new IllegalArgumentException(s"$path is not state"))
    store.copy(job = RhinoJob.of(outside(new Path(root)), conf))
  }
}

private[state] object RhinoCheckpoint {
  val Scheme = "rhino"
  private val Names = SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide).toSet
  private val Folders = Set("SSTs", "logs")
  private val File = """\.?\d+(_[^/]*)?\.(changelog|zip|delta|snapshot)\b.*""".r

  /** Whether a query checkpoint is kept through Rhino's file system. */
  def isRhino(location: Path): Boolean = location.toUri.getScheme == Scheme

  /** Throws IllegalArgumentException: a state root on rhino:// with Rhino's provider would be kept by both. */
  def refuseProvider(stateRoot: Path): Unit =
    require(!isRhino(stateRoot), both(stateRoot.getParent.toString))

  def both(checkpoint: String): String =
    s"the checkpoint $checkpoint is on rhino:// and the state store provider is ${classOf[RhinoStateStoreProvider].getName}: " +
      "choose one. Either a checkpointLocation on rhino:// with spark.sql.streaming.stateStore.providerClass=" +
      s"${classOf[RocksDBStateStoreProvider].getName} (serves transformWithState too), or Rhino's provider with a " +
      "checkpointLocation that is not on rhino://"

  /**
   * Root of the query checkpoint, store (without its job) and the name below the store's root, of a path that is state:
   * <root>/state/<operator>/<partition>/[<store>/]<name>. None for all else, `_metadata` among it, which the driver writes.
   */
  def split(path: Path): Option[(String, RhinoStore, String)] = {
    val parts = path.toUri.getPath.split('/').toIndexedSeq
    val at = parts.indices.findLast(i =>
      parts(i) == "state" && parts.isDefinedAt(i + 2) && isNumber(parts(i + 1)) && isNumber(parts(i + 2)))
    at.flatMap { i =>
      val (name, below) = parts.drop(i + 3) match {
        case head +: rest if Names(head) => (head, rest)
        case rest => (StateStoreId.DEFAULT_STORE_NAME, rest)
      }
      if (!isState(below)) None
      else Some((parts.take(i).mkString("/"), RhinoStore("", parts(i + 1).toLong, parts(i + 2).toInt, name), below.mkString("/")))
    }
  }

  private def isNumber(text: String): Boolean = text.nonEmpty && text.forall(_.isDigit)

  private def isState(below: Seq[String]): Boolean = below match {
    case Seq() => true
    case Seq(name) => Folders(name) || File.matches(name)
    case Seq(folder, _) => Folders(folder)
    case _ => false
  }
}
