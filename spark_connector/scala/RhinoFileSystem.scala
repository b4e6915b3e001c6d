package org.apache.spark.sql.execution.streaming.state

import java.io.{BufferedOutputStream, FileNotFoundException, IOException}
import java.net.URI
import java.nio.file.{FileSystemException, Files, Paths, StandardCopyOption}
import java.nio.file.{Path => LocalPath}
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, FSDataInputStream, FSDataOutputStream, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/**
 * State files as Spark's RocksDB file manager sees them (scheme "rhino"). New files are made or hard-linked in the
 * session's inbox; the rename of a temporary file to its final name is the commit point and becomes `Commit`
 * (Rhino 4.2.2, phase 2). Reading is by hard link or in place. A failure throws, it never returns false:
 * Spark takes false for success when the destination exists.
 */
class RhinoFileSystem extends FileSystem with Logging {
  import RhinoSchema._

  private val Versioned = """\d+_[^/]+\.(changelog|zip)""".r
  private val local = new RawLocalFileSystem()
  private val temporary = new ConcurrentHashMap[String, LocalPath]()
  private val warnedOfCopies = new AtomicBoolean(false)

  override def initialize(uri: URI, conf: Configuration): Unit = {
    super.initialize(uri, conf)
    setConf(conf)
    local.initialize(URI.create("file:///"), conf)
  }

  override def getScheme: String = "rhino"
  override def getUri: URI = URI.create("rhino:///")
  override def getWorkingDirectory: Path = new Path("rhino:///")
  override def setWorkingDirectory(path: Path): Unit = ()

  private def sidecar: RhinoSidecar = RhinoSidecar.get
  private def prepareTimeoutS: Double = RhinoSidecar.settings.prepareTimeoutS

  private def storeFile(path: Path): (RhinoStore, String) =
    RhinoStore.parse(path).filter(_._2.nonEmpty).getOrElse(
      throw new IOException(s"$path is not a state file: expected rhino:///job/operator/partition/store/name"))

  // ------------------------------------------------------------------ writing

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short,
      blockSize: Long, progress: Progressable): FSDataOutputStream = {
    storeFile(path)
    val file = Paths.get(sidecar.session().inbox, UUID.randomUUID().toString)
    val stream = new FSDataOutputStream(new BufferedOutputStream(Files.newOutputStream(file), 1 << 16), statistics)
    temporary.put(path.toUri.getPath, file)
    stream
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    throw new UnsupportedOperationException(s"append to $path: state files are immutable")

  override def rename(from: Path, to: Path): Boolean = {
    val file = temporary.get(from.toUri.getPath) // stays until it is committed, so that a delete after a failure finds it
    if (file == null) throw new FileNotFoundException(s"$from: no such file was written here; cannot commit $to")
    val (store, name) = storeFile(to)
    if (Versioned.unapplySeq(name).isEmpty) {
      throw new IOException(s"$to: expected <version>_<id>.changelog or .zip; Rhino needs " +
        "spark.sql.streaming.stateStore.checkpointFormatVersion=2")
    }
    val lineage = if (name.endsWith(".changelog")) lineageOf(store, file) else Seq.empty
    val started = System.nanoTime()
    val timeoutS = RhinoSidecar.settings.commitTimeoutS + 5
    sidecar.call("Commit", "CommitRequest", timeoutS, s"commit $store/$name") { session =>
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name,
        "inbox_name" -> inInbox(session, file).getFileName.toString, "lineage" -> lineage)
    }
    temporary.remove(from.toUri.getPath)
    RhinoWarmUp.committed(store, name)
    if (name.endsWith(".changelog")) RhinoMetrics.committed(store, (System.nanoTime() - started) / 1000000)
    true
  }

  /** After a restart of the sidecar the session has another inbox: the file moves there. */
  private def inInbox(session: RhinoSession, file: LocalPath): LocalPath = {
    val there = Paths.get(session.inbox, file.getFileName.toString)
    if (there != file && !Files.exists(there) && Files.exists(file)) Files.move(file, there)
    there
  }

  private def lineageOf(store: RhinoStore, file: LocalPath): Seq[Message] = {
    val path = new Path(file.toUri)
    val manager = new FileSystemBasedCheckpointFileManager(path, getConf)
    val codec = CompressionCodec.createCodec(SparkEnv.get.conf, RhinoStateStoreProvider.codecOf(store))
    val reader = new StateStoreChangelogReaderFactory(manager, path, codec).constructChangelogReader()
    try {
      reader.lineage.toSeq.sortBy(_.version).map(item =>
        message("Version", "version" -> item.version, "checkpoint_id" -> item.checkpointUniqueId))
    } finally reader.closeIfNeeded()
  }

  override def copyFromLocalFile(deleteSource: Boolean, overwrite: Boolean, from: Path, to: Path): Unit = {
    val (store, name) = storeFile(to)
    val source = Paths.get(from.toUri.getPath)
    val inboxName = UUID.randomUUID().toString
    sidecar.call("Add", "AddRequest", RhinoSidecar.settings.commitTimeoutS, s"add $store/$name") { session =>
      linkOrCopy(source, Paths.get(session.inbox, inboxName))
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name, "inbox_name" -> inboxName)
    }
    if (deleteSource) Files.deleteIfExists(source)
  }

  private def linkOrCopy(from: LocalPath, to: LocalPath): Unit = {
    Files.deleteIfExists(to)
    try Files.createLink(to, from)
    catch {
      case error: FileSystemException if !error.isInstanceOf[java.nio.file.NoSuchFileException] =>
        if (warnedOfCopies.compareAndSet(false, true)) {
          logWarning(s"Rhino: cannot hard-link $from to $to (${error.getReason}); copying instead, which costs time in " +
            "proportion to the state. Put the sidecar's --data-dir on the file system of spark.local.dir")
        }
        Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING)
    }
  }

  // ------------------------------------------------------------------ reading

  private def stat(store: RhinoStore, name: String): Option[Message] = {
    val reply = sidecar.call("Stat", "StatRequest", prepareTimeoutS, s"look up $store/$name") { _ =>
      Seq("store" -> store.message, "name" -> name)
    }
    if (reply.bool("exists")) Some(reply) else None
  }

  private def localFile(store: RhinoStore, name: String): LocalPath =
    Paths.get(sidecar.session().storeRoot, store.relative, name)

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    val (store, name) = storeFile(path)
    val file = localFile(store, name)
    // A load opens every changelog twice: asking the sidecar about what Prepare has found took most of a replay.
    if (!RhinoVersions.isLoading(store) || !Files.exists(file)) requireVisible(path, store, name)
    local.open(new Path(file.toUri), bufferSize)
  }

  /** Spark's state reader opens single changelogs, which may be elsewhere. */
  private def requireVisible(path: Path, store: RhinoStore, name: String): Unit = if (stat(store, name).isEmpty) {
    RhinoVersions.ofFile(name).foreach { case (v, id) => RhinoVersions.fetch(store, v, id) }
    if (stat(store, name).isEmpty) throw new FileNotFoundException(s"$path is not held by this worker")
  }

  override def copyToLocalFile(deleteSource: Boolean, from: Path, to: Path, useRawLocal: Boolean): Unit = {
    val (store, name) = storeFile(from)
    linkOrCopy(localFile(store, name), Paths.get(to.toUri.getPath))
  }

  override def getFileStatus(path: Path): FileStatus = RhinoStore.parse(path) match {
    case Some((store, name)) if name.contains(".") =>
      val reply = stat(store, name).getOrElse(throw new FileNotFoundException(s"$path is not held by this worker"))
      status(path, reply.sub("file").long("size_bytes"), reply.long("modified_ms"))
    case _ => new FileStatus(0L, true, 1, 0L, 0L, path)
  }

  private def status(path: Path, size: Long, modifiedMs: Long): FileStatus =
    new FileStatus(size, false, 1, 64L * 1024 * 1024, modifiedMs, path)

  /** Visible files directly below `path`, which is a store's root or its SSTs or logs folder. */
  override def listStatus(path: Path): Array[FileStatus] = RhinoStore.parse(path) match {
    case None => Array.empty
    case Some((store, folder)) =>
      val reply = sidecar.call("List", "ListRequest", prepareTimeoutS, s"list $path") { _ =>
        Seq("store" -> store.message)
      }
      val modified = reply.message.getField(reply.getDescriptorForType.findFieldByName("modified_ms"))
        .asInstanceOf[java.util.List[java.lang.Long]]
      val prefix = if (folder.isEmpty) "" else folder + "/"
      reply.subs("files").zipWithIndex.collect {
        case (file, i) if file.string("name").startsWith(prefix) &&
            !file.string("name").stripPrefix(prefix).contains("/") =>
          status(new Path(path, file.string("name").stripPrefix(prefix)), file.long("size_bytes"), modified.get(i))
      }.toArray
  }

  // ------------------------------------------------------------------ the rest

  /** Spark's deletes are hints: the sidecar collects by the floors that the driver publishes. */
  override def delete(path: Path, recursive: Boolean): Boolean = {
    val file = temporary.remove(path.toUri.getPath)
    if (file != null) Files.deleteIfExists(file)
    true
  }

  override def mkdirs(path: Path, permission: FsPermission): Boolean = true
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
  override def setTimes(path: Path, modifiedMs: Long, accessedMs: Long): Unit = ()
}
