package rhino.spark.files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import rhino.spark.settings.IntegrationMode.Scheme
import rhino.spark.store.{StateFileName, StatePath, StoreId}

/** The place to which a path on rhino:// leads. */
private[rhino] sealed trait Place

private[rhino] object Place {

  /** With the sidecar. */
  case class StateFile(store: StoreId, name: String) extends Place
  case class StateFolder(store: StoreId, folder: String) extends Place

  /** The folder of a store in a query checkpoint. It is on the user's file system, but the sidecar has its files. */
  case class StoreFolder(checkpoint: UserCheckpoint, store: () => StoreId) extends Place

  /** On the user's file system. */
  case class Outside(checkpoint: UserCheckpoint) extends Place
  case object Nowhere extends Place

  /** The place of a path in rhino:///job/operator/partition/store. */
  def of(path: Path): Place = StoreId.parse(path) match {
    case Some((store, name)) => inStore(store, name)
    case None => Nowhere
  }

  /** The place of a path in a query checkpoint on rhino://<scheme>[@<authority>]. */
  def of(path: Path, checkpoint: UserCheckpoint, conf: Configuration): Place = {
    def store(state: StatePath) = {
      val job = CheckpointJobs.of(checkpoint.outside(new Path(state.checkpoint)), conf)
      StoreId(job, state.operator, state.partition, state.store)
    }
    StatePath.parse(path) match {
      case Some(state) if state.name.isEmpty => StoreFolder(checkpoint, () => store(state))
      case Some(state) => inStore(store(state), state.name)
      case None => Outside(checkpoint)
    }
  }

  private def inStore(store: StoreId, name: String): Place =
    if (StateFileName.isFile(name)) StateFile(store, name) else StateFolder(store, name)
}

/**
 * A query checkpoint on one of the user's file systems, with its names on rhino://. `authority` is
 * "<scheme>[@<authority>]" of that file system: rhino://hdfs@namenode:8020/q is hdfs://namenode:8020/q, and
 * rhino://file/q is file:/q.
 */
private[rhino] class UserCheckpoint(val authority: String, conf: Configuration) {
  private val parts = authority.split("@", 2)
  private val scheme = parts.head
  private val itsAuthority = parts.lift(1).orNull
  if (scheme == Scheme) throw new IllegalArgumentException(
    s"rhino://$authority: the scheme after rhino:// must be the one of your file system, such as file or hdfs")

  /** The user's file system. */
  lazy val files: FileSystem = outside(new Path("/")).getFileSystem(conf)

  /** The same path on the user's file system. */
  def outside(path: Path): Path = new Path(scheme, itsAuthority, path.toUri.getPath)

  private def inside(path: Path): Path = new Path(Scheme, authority, path.toUri.getPath)

  def status(path: Path): FileStatus = named(files.getFileStatus(outside(path)))
  def list(path: Path): Array[FileStatus] = files.listStatus(outside(path)).map(named)

  private def named(status: FileStatus): FileStatus = {
    status.setPath(inside(status.getPath))
    status
  }
}
