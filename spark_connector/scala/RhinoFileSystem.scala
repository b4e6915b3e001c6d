package org.apache.spark.sql.execution.streaming.state

import java.io.IOException
import java.net.URI
import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, FSDataInputStream, FSDataOutputStream, Path}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The scheme "rhino", in two forms. `rhino:///job/operator/partition/store` is the root that Rhino's provider hands to
 * Spark: state files only. `rhino://<scheme>[@<authority>]/<path>` is a whole query checkpoint on a file system of the
 * user's, for Spark's own provider: state files go to the sidecar, all others to that file system (`RhinoCheckpoint`).
 */
class RhinoFileSystem extends FileSystem {
  private var uri: URI = _
  private var checkpoints: Option[RhinoCheckpoint] = None
  private var states: RhinoStateFiles = _

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    setConf(conf)
    checkpoints = Option(name.getAuthority).filter(_.nonEmpty).map(new RhinoCheckpoint(_, conf))
    uri = URI.create(s"rhino://${checkpoints.map(_.authority).getOrElse("")}/")
    states = new RhinoStateFiles(conf, statistics)
  }

  override def getScheme: String = "rhino"
  override def getUri: URI = uri
  override def getWorkingDirectory: Path = new Path(uri)
  override def setWorkingDirectory(path: Path): Unit = ()

  private sealed trait Place
  private case class StateFile(store: RhinoStore, name: String) extends Place
  private case class StateFolder(store: RhinoStore, folder: String) extends Place
  /** The folder of a store: there for all to see on the user's file system, its files are the sidecar's. */
  private case class StoreFolder(checkpoint: RhinoCheckpoint) extends Place
  private case class Outside(checkpoint: RhinoCheckpoint) extends Place
  private case object Nowhere extends Place

  private def place(path: Path): Place = checkpoints match {
    case Some(checkpoint) =>
      RhinoCheckpoint.split(path) match {
        case Some((_, _, "")) => StoreFolder(checkpoint)
        case Some((_, _, name)) if isFile(name) => StateFile(checkpoint.storeOf(path), name)
        case Some((_, _, folder)) => StateFolder(checkpoint.storeOf(path), folder)
        case None => Outside(checkpoint)
      }
    case None =>
      RhinoStore.parse(path) match {
        case Some((store, name)) if isFile(name) => StateFile(store, name)
        case Some((store, folder)) => StateFolder(store, folder)
        case None => Nowhere
      }
  }

  private def isFile(name: String): Boolean = name.contains(".")

  private def notAFile(path: Path) = new IOException(
    s"$path is no state file: expected rhino:///job/operator/partition/store/name, or a query checkpoint named " +
      "rhino://<scheme>[@<authority>]/<path>, such as rhino://file/checkpoints/q or rhino://hdfs@namenode:8020/checkpoints/q")

  // ------------------------------------------------------------------ writing

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short,
      blockSize: Long, progress: Progressable): FSDataOutputStream = place(path) match {
    case StateFile(store, name) => states.create(store, name)
    case Outside(checkpoint) =>
      checkpoint.files.create(checkpoint.outside(path), permission, overwrite, bufferSize, replication, blockSize, progress)
    case _ => throw notAFile(path)
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream = place(path) match {
    case Outside(checkpoint) => checkpoint.files.append(checkpoint.outside(path), bufferSize, progress)
    case _ => throw new UnsupportedOperationException(s"append to $path: state files are immutable")
  }

  override def rename(from: Path, to: Path): Boolean = (place(from), place(to)) match {
    case (StateFile(store, temporary), StateFile(same, name)) if store == same =>
      states.commit(store, temporary, name)
      true
    case (Outside(checkpoint), Outside(_)) => checkpoint.files.rename(checkpoint.outside(from), checkpoint.outside(to))
    case _ => throw new IOException(s"cannot rename $from to $to: state files stay in their store")
  }

  override def copyFromLocalFile(deleteSource: Boolean, overwrite: Boolean, from: Path, to: Path): Unit = place(to) match {
    case StateFile(store, name) =>
      val source = Paths.get(from.toUri.getPath)
      states.add(source, store, name)
      if (deleteSource) Files.deleteIfExists(source)
    case Outside(checkpoint) => checkpoint.files.copyFromLocalFile(deleteSource, overwrite, from, checkpoint.outside(to))
    case _ => throw notAFile(to)
  }

  override def delete(path: Path, recursive: Boolean): Boolean = place(path) match {
    case StateFile(store, name) =>
      states.discard(store, name)
      true
    case Outside(checkpoint) => checkpoint.files.delete(checkpoint.outside(path), recursive)
    case StoreFolder(checkpoint) => checkpoint.files.delete(checkpoint.outside(path), recursive)
    case _ => true
  }

  override def mkdirs(path: Path, permission: FsPermission): Boolean = withOutside(path, true) { checkpoint =>
    checkpoint.files.mkdirs(checkpoint.outside(path), permission)
  }

  override def setPermission(path: Path, permission: FsPermission): Unit = withOutside(path, ()) { checkpoint =>
    checkpoint.files.setPermission(checkpoint.outside(path), permission)
  }

  override def setTimes(path: Path, modifiedMs: Long, accessedMs: Long): Unit = withOutside(path, ()) { checkpoint =>
    checkpoint.files.setTimes(checkpoint.outside(path), modifiedMs, accessedMs)
  }

  /** `otherwise` for what lies in a store, whose files are immutable and whose folders need no making. */
  private def withOutside[T](path: Path, otherwise: T)(act: RhinoCheckpoint => T): T = place(path) match {
    case Outside(checkpoint) => act(checkpoint)
    case StoreFolder(checkpoint) => act(checkpoint)
    case _ => otherwise
  }

  // ------------------------------------------------------------------ reading

  override def open(path: Path, bufferSize: Int): FSDataInputStream = place(path) match {
    case StateFile(store, name) =>
      beforeLoad(store, name)
      states.open(store, name, bufferSize)
    case Outside(checkpoint) => checkpoint.files.open(checkpoint.outside(path), bufferSize)
    case _ => throw notAFile(path)
  }

  override def copyToLocalFile(deleteSource: Boolean, from: Path, to: Path, useRawLocal: Boolean): Unit = place(from) match {
    case StateFile(store, name) => states.linkTo(store, name, Paths.get(to.toUri.getPath))
    case Outside(checkpoint) => checkpoint.files.copyToLocalFile(deleteSource, checkpoint.outside(from), to, useRawLocal)
    case _ => throw notAFile(from)
  }

  override def getFileStatus(path: Path): FileStatus = place(path) match {
    case StateFile(store, name) =>
      beforeLoad(store, name)
      states.status(path, store, name)
    case Outside(checkpoint) => checkpoint.status(path)
    case StoreFolder(checkpoint) => checkpoint.status(path)
    case _ => new FileStatus(0L, true, 1, 0L, 0L, path)
  }

  /** Rhino's provider prepares a load itself. */
  private def beforeLoad(store: RhinoStore, name: String): Unit = if (checkpoints.nonEmpty) RhinoLoads.before(store, name)

  override def listStatus(path: Path): Array[FileStatus] = place(path) match {
    case StateFolder(store, folder) => states.list(path, store, folder)
    case StoreFolder(checkpoint) if RhinoSidecar.running => states.list(path, checkpoint.storeOf(path), "")
    case StoreFolder(checkpoint) => checkpoint.list(path)
    case Outside(checkpoint) => checkpoint.list(path)
    case StateFile(_, _) => Array(getFileStatus(path))
    case Nowhere => Array.empty
  }
}
