package rhino.spark.files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import rhino.spark.settings.IntegrationMode.Scheme

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
