package rhino.spark

import java.io.IOException
import java.net.URI
import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, FileContext, FileStatus, FileSystem, FSDataInputStream, FSDataOutputStream, Options, Path, UnsupportedFileSystemException}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

import rhino.spark.files.{LateSnapshots, Place, StateReader, StateWriter, UserCheckpoint}
import rhino.spark.files.Place._
import rhino.spark.load.TaskLoads
import rhino.spark.settings.IntegrationMode.Scheme
import rhino.spark.sidecar.Sidecar
import rhino.spark.store.StoreId

/**
 * The file system for the scheme "rhino", which has two forms. `rhino:///job/operator/partition/store` is the root that
 * Rhino's provider passes to Spark; it contains state files only. `rhino://<scheme>[@<authority>]/<path>` is a whole
 * query checkpoint on a file system of the user, for Spark's own provider. Its state files go to the sidecar, and all
 * other files to that file system (`Place`).
 */
class RhinoFileSystem extends FileSystem {
  private var uri: URI = _
  private var checkpoint: Option[UserCheckpoint] = None // in the second form
  private var writer: StateWriter = _
  private var reader: StateReader = _

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    setConf(conf)
    checkpoint = Option(name.getAuthority).filter(_.nonEmpty).map(new UserCheckpoint(_, conf))
    uri = URI.create(s"$Scheme://${checkpoint.map(_.authority).getOrElse("")}/")
    writer = new StateWriter(conf, statistics)
    reader = new StateReader(conf)
  }

  override def getScheme: String = Scheme
  override def getUri: URI = uri
  override def getWorkingDirectory: Path = new Path(uri)
  override def setWorkingDirectory(path: Path): Unit = ()

  private def place(path: Path): Place = checkpoint match {
    case Some(its) => Place.of(path, its, getConf)
    case None => Place.of(path)
  }

  private def notAFile(path: Path) = new IOException(
    s"$path is no state file: expected rhino:///job/operator/partition/store/name, or a query checkpoint named " +
      "rhino://<scheme>[@<authority>]/<path>, such as rhino://file/checkpoints/q or " +
      "rhino://hdfs@namenode:8020/checkpoints/q")

  // ------------------------------------------------------------------ writing

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short,
      blockSize: Long, progress: Progressable): FSDataOutputStream = place(path) match {
    case StateFile(store, name) => writer.create(store, name)
    case Outside(checkpoint) =>
      val outside = checkpoint.outside(path)
      checkpoint.files.create(outside, permission, overwrite, bufferSize, replication, blockSize, progress)
    case _ => throw notAFile(path)
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream = place(path) match {
    case Outside(checkpoint) => checkpoint.files.append(checkpoint.outside(path), bufferSize, progress)
    case _ => throw new UnsupportedOperationException(s"append to $path: state files are immutable")
  }

  override def rename(from: Path, to: Path): Boolean = (place(from), place(to)) match {
    case (StateFile(store, temporary), StateFile(same, name)) if store == same =>
      if (checkpoint.nonEmpty) LateSnapshots.check(store, name)
      writer.commit(store, temporary, name)
      true
    case (Outside(checkpoint), Outside(_)) => checkpoint.files.rename(checkpoint.outside(from), checkpoint.outside(to))
    case _ => throw new IOException(s"cannot rename $from to $to: state files stay in their store")
  }

  /** A rename as in Hadoop's FileContext. Outside of state it has all guarantees of the user's file system. */
  private[spark] def move(from: Path, to: Path, overwrite: Boolean): Unit = (place(from), place(to)) match {
    case (Outside(checkpoint), Outside(_)) =>
      val (source, target) = (checkpoint.outside(from), checkpoint.outside(to))
      try {
        val option = if (overwrite) Options.Rename.OVERWRITE else Options.Rename.NONE
        FileContext.getFileContext(source.toUri, getConf).rename(source, target, option)
      } catch {
        case _: UnsupportedFileSystemException =>
          new FileSystemBasedCheckpointFileManager(source, getConf).renameTempFile(source, target, overwrite)
      }
    case _ => rename(from, to)
  }

  override def copyFromLocalFile(
      deleteSource: Boolean, overwrite: Boolean, from: Path, to: Path): Unit = place(to) match {
    case StateFile(store, name) =>
      val source = Paths.get(from.toUri.getPath)
      writer.add(source, store, name)
      if (deleteSource) Files.deleteIfExists(source)
    case Outside(checkpoint) =>
      checkpoint.files.copyFromLocalFile(deleteSource, overwrite, from, checkpoint.outside(to))
    case _ => throw notAFile(to)
  }

  override def delete(path: Path, recursive: Boolean): Boolean = place(path) match {
    case StateFile(store, name) =>
      writer.discard(store, name)
      true
    case Outside(checkpoint) => checkpoint.files.delete(checkpoint.outside(path), recursive)
    case StoreFolder(checkpoint, _) => checkpoint.files.delete(checkpoint.outside(path), recursive)
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

  /** Returns `otherwise` for paths inside a store: its files are immutable, and its folders need not be created. */
  private def withOutside[T](path: Path, otherwise: T)(act: UserCheckpoint => T): T = place(path) match {
    case Outside(checkpoint) => act(checkpoint)
    case StoreFolder(checkpoint, _) => act(checkpoint)
    case _ => otherwise
  }

  // ------------------------------------------------------------------ reading

  override def open(path: Path, bufferSize: Int): FSDataInputStream = place(path) match {
    case StateFile(store, name) =>
      beforeLoad(store, name)
      reader.open(store, name, bufferSize)
    case Outside(checkpoint) => checkpoint.files.open(checkpoint.outside(path), bufferSize)
    case _ => throw notAFile(path)
  }

  override def copyToLocalFile(
      deleteSource: Boolean, from: Path, to: Path, useRawLocal: Boolean): Unit = place(from) match {
    case StateFile(store, name) => reader.linkTo(store, name, Paths.get(to.toUri.getPath))
    case Outside(checkpoint) =>
      checkpoint.files.copyToLocalFile(deleteSource, checkpoint.outside(from), to, useRawLocal)
    case _ => throw notAFile(from)
  }

  override def getFileStatus(path: Path): FileStatus = place(path) match {
    case StateFile(store, name) =>
      beforeLoad(store, name)
      writer.unfinished(path, store, name).getOrElse(reader.status(path, store, name))
    case Outside(checkpoint) => checkpoint.status(path)
    case StoreFolder(checkpoint, _) => checkpoint.status(path)
    case _ => new FileStatus(0L, true, 1, 0L, 0L, path)
  }

  /** Only for Spark's own provider; Rhino's provider prepares a load itself. */
  private def beforeLoad(store: StoreId, name: String): Unit = if (checkpoint.nonEmpty) TaskLoads.before(store, name)

  override def listStatus(path: Path): Array[FileStatus] = place(path) match {
    case StateFolder(store, folder) => reader.list(path, store, folder)
    case StoreFolder(_, store) if Sidecar.running => reader.list(path, store(), "")
    case StoreFolder(checkpoint, _) => checkpoint.list(path)
    case Outside(checkpoint) => checkpoint.list(path)
    case StateFile(_, _) => Array(getFileStatus(path))
    case Nowhere => Array.empty
  }
}

/** The scheme for Hadoop's FileContext, which Spark's default checkpoint file manager uses. */
class RhinoAbstractFileSystem(itsUri: URI, conf: Configuration)
  extends DelegateToFileSystem(itsUri, new RhinoFileSystem, conf, Scheme, false) {

  /** Allows every authority, because an authority of rhino:// contains scheme and authority of another file system. */
  override def checkPath(path: Path): Unit = ()

  override def renameInternal(from: Path, to: Path, overwrite: Boolean): Unit =
    fsImpl.asInstanceOf[RhinoFileSystem].move(from, to, overwrite)
}
