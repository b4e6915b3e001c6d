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

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.internal.Logging
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/**
 * State files as Spark's RocksDB file manager uses them. New files are made or hard-linked in the session's inbox; the
 * rename of a temporary file to its final name is the commit point and becomes `Commit` (Rhino 4.2.2, phase 2). Reading
 * is by hard link or in place. A failure throws, it never returns false: Spark takes false for success when the
 * destination exists.
 */
private[state] class RhinoStateFiles(conf: Configuration, statistics: => FileSystem.Statistics) extends Logging {
  import RhinoSchema._

  private val Versioned = """\d+_[^/]+\.(changelog|zip)""".r
  /** In the background Spark waits so many times as long, until gigabytes have their copies. */
  private val SnapshotPatience = 10
  private val local = new RawLocalFileSystem()
  local.initialize(URI.create("file:///"), conf)
  private val temporary = new ConcurrentHashMap[(RhinoStore, String), LocalPath]()
  private val warnedOfCopies = new AtomicBoolean(false)

  private def sidecar: RhinoSidecar = RhinoSidecar.get
  private def prepareTimeoutS: Double = RhinoSidecar.settings.prepareTimeoutS

  // ------------------------------------------------------------------ writing

  def create(store: RhinoStore, name: String): FSDataOutputStream = {
    val file = Paths.get(sidecar.session().inbox, UUID.randomUUID().toString)
    val stream = new FSDataOutputStream(new BufferedOutputStream(Files.newOutputStream(file), 1 << 16), statistics)
    temporary.put((store, name), file)
    stream
  }

  /** The commit point: `from`, written here, becomes `name`. */
  def commit(store: RhinoStore, from: String, name: String): Unit = {
    val file = temporary.get((store, from)) // stays until it is committed, so that a delete after a failure finds it
    if (file == null) throw new FileNotFoundException(s"$store/$from: no such file was written here; cannot commit $name")
    if (Versioned.unapplySeq(name).isEmpty) throw new IOException(s"$store/$name cannot be kept by Rhino: ${wayOut(name)}")
    val lineage = if (name.endsWith(".changelog")) lineageOf(store, file) else Seq.empty
    val started = System.nanoTime()
    val inTask = TaskContext.get() != null // so is a snapshot that Spark forces
    val timeoutS = RhinoSidecar.settings.commitTimeoutS * (if (inTask) 1 else SnapshotPatience)
    sidecar.call("Commit", "CommitRequest", timeoutS + 5, s"commit $store/$name") { session =>
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name,
        "inbox_name" -> inInbox(session, file).getFileName.toString, "lineage" -> lineage, "timeout_s" -> timeoutS)
    }
    temporary.remove((store, from))
    RhinoWarmUp.committed(store, name)
    if (name.endsWith(".changelog")) RhinoMetrics.committed(store, (System.nanoTime() - started) / 1000000)
  }

  private def wayOut(name: String): String = {
    val prefix = "spark.sql.streaming."
    if (name.endsWith(".delta") || name.endsWith(".snapshot")) {
      s"it is a file of Spark's in-memory provider. Set ${prefix}stateStore.providerClass to " +
        classOf[RocksDBStateStoreProvider].getName
    } else if (name.endsWith(".crc")) s"set ${prefix}checkpoint.fileChecksum.enabled=false; Rhino has checksums of its own"
    else {
      s"expected <version>_<id>.changelog or .zip, which ${prefix}stateStore.checkpointFormatVersion=2 gives. Format 1 " +
        "reuses file names on retries, so a late task could overwrite another's version"
    }
  }

  /** After a restart of the sidecar the session has another inbox: the file moves there. */
  private def inInbox(session: RhinoSession, file: LocalPath): LocalPath = {
    val there = Paths.get(session.inbox, file.getFileName.toString)
    if (there != file && !Files.exists(there) && Files.exists(file)) Files.move(file, there)
    there
  }

  private def lineageOf(store: RhinoStore, file: LocalPath): Seq[Message] = {
    val path = new Path(file.toUri)
    val manager = new FileSystemBasedCheckpointFileManager(path, conf)
    val codec = CompressionCodec.createCodec(SparkEnv.get.conf, RhinoStateStoreProvider.codecOf(store))
    val reader = new StateStoreChangelogReaderFactory(manager, path, codec).constructChangelogReader()
    try {
      reader.lineage.toSeq.sortBy(_.version).map(item =>
        message("Version", "version" -> item.version, "checkpoint_id" -> item.checkpointUniqueId))
    } finally reader.closeIfNeeded()
  }

  /** Takes over an immutable file of Spark's, by a hard link. */
  def add(source: LocalPath, store: RhinoStore, name: String): Unit = {
    val inboxName = UUID.randomUUID().toString
    sidecar.call("Add", "AddRequest", RhinoSidecar.settings.commitTimeoutS, s"add $store/$name") { session =>
      linkOrCopy(source, Paths.get(session.inbox, inboxName))
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name, "inbox_name" -> inboxName)
    }
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

  /** Spark's deletes are hints: the sidecar collects by the floors that the driver publishes. */
  def discard(store: RhinoStore, name: String): Unit = {
    val file = temporary.remove((store, name))
    if (file != null) Files.deleteIfExists(file)
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

  private def absent(store: RhinoStore, name: String) =
    new FileNotFoundException(s"$store/$name is not held by this worker")

  def open(store: RhinoStore, name: String, bufferSize: Int): FSDataInputStream = {
    val file = localFile(store, name)
    // A load opens every changelog twice: asking the sidecar about what Prepare has found took most of a replay.
    if (!RhinoVersions.isLoading(store) || !Files.exists(file)) requireVisible(store, name)
    local.open(new Path(file.toUri), bufferSize)
  }

  /** Spark's state reader opens single changelogs, which may be elsewhere. */
  private def requireVisible(store: RhinoStore, name: String): Unit = if (stat(store, name).isEmpty) {
    RhinoVersions.ofFile(name).foreach { case (v, id) => RhinoVersions.fetch(store, v, id) }
    if (stat(store, name).isEmpty) throw absent(store, name)
  }

  /** A hard link `to` of the file, for RocksDB to open. */
  def linkTo(store: RhinoStore, name: String, to: LocalPath): Unit = linkOrCopy(localFile(store, name), to)

  def status(path: Path, store: RhinoStore, name: String): FileStatus = {
    val reply = stat(store, name).getOrElse(throw absent(store, name))
    statusOf(path, reply.sub("file").long("size_bytes"), reply.long("modified_ms"))
  }

  private def statusOf(path: Path, size: Long, modifiedMs: Long): FileStatus =
    new FileStatus(size, false, 1, 64L * 1024 * 1024, modifiedMs, path)

  /** Visible files directly below `path`, which is `folder` ("": the root) of the store. */
  def list(path: Path, store: RhinoStore, folder: String): Array[FileStatus] = {
    val reply = sidecar.call("List", "ListRequest", prepareTimeoutS, s"list $path") { _ => Seq("store" -> store.message) }
    val modified = reply.message.getField(reply.getDescriptorForType.findFieldByName("modified_ms"))
      .asInstanceOf[java.util.List[java.lang.Long]]
    val prefix = if (folder.isEmpty) "" else folder + "/"
    reply.subs("files").zipWithIndex.collect {
      case (file, i) if file.string("name").startsWith(prefix) &&
          !file.string("name").stripPrefix(prefix).contains("/") =>
        statusOf(new Path(path, file.string("name").stripPrefix(prefix)), file.long("size_bytes"), modified.get(i))
    }.toArray
  }
}
