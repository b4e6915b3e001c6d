package rhino.spark.files

import java.io.FileNotFoundException
import java.net.URI
import java.nio.file.{Files, Path => LocalPath, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FSDataInputStream, Path, RawLocalFileSystem}

import rhino.spark.load.Versions
import rhino.spark.sidecar.{Sidecar, SidecarConnection}
import rhino.spark.store.{StateFileName, StoreId}
import rhino.spark.wire.Schema.{Fields, Message}

/** Reads state files for Spark's RocksDB file manager: by hard link, or in place in the sidecar's folder. */
private[rhino] class StateReader(conf: Configuration) {
  private val local = new RawLocalFileSystem()
  local.initialize(URI.create("file:///"), conf)

  private def sidecar: SidecarConnection = Sidecar.get
  private def timeoutS: Double = Sidecar.settings.prepareTimeoutS

  private def stat(store: StoreId, name: String): Option[Message] = {
    val reply = sidecar.call("Stat", "StatRequest", timeoutS, s"look up $store/$name") { session =>
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name)
    }
    if (reply.bool("exists")) Some(reply) else None
  }

  private def localFile(store: StoreId, name: String): LocalPath =
    Paths.get(sidecar.session().storeRoot, store.toString, name)

  private def absent(store: StoreId, name: String) =
    new FileNotFoundException(s"this worker does not have $store/$name")

  def open(store: StoreId, name: String, bufferSize: Int): FSDataInputStream = {
    if (StateFileName.isChecksum(name)) throw absent(store, name)
    val file = localFile(store, name)
    // A load opens every changelog twice. Asking the sidecar again for files that Prepare has found would slow down
    // replays.
    if (!Versions.isLoading(store) || !Files.exists(file)) requireVisible(store, name)
    local.open(new Path(file.toUri), bufferSize)
  }

  /** Spark's state reader opens single changelogs, which may be on another worker. */
  private def requireVisible(store: StoreId, name: String): Unit = if (stat(store, name).isEmpty) {
    StateFileName.version(name).foreach { case (version, id) => Versions.fetch(store, version, id) }
    if (stat(store, name).isEmpty) throw absent(store, name)
  }

  /** Creates a hard link `to` of the file, which RocksDB opens. */
  def linkTo(store: StoreId, name: String, to: LocalPath): Unit = InboxFile.linkOrCopy(localFile(store, name), to)

  def status(path: Path, store: StoreId, name: String): FileStatus = {
    if (StateFileName.isChecksum(name) || StateFileName.isTemporary(name)) throw absent(store, name)
    val reply = stat(store, name).getOrElse(throw absent(store, name))
    StateReader.statusOf(path, reply.sub("file").long("size_bytes"), reply.long("modified_ms"))
  }

  /** Visible files directly below `path`, which is `folder` ("": the root) of the store. */
  def list(path: Path, store: StoreId, folder: String): Array[FileStatus] = {
    val reply = sidecar.call("List", "ListRequest", timeoutS, s"list $path") { session =>
      Seq("session_id" -> session.id, "store" -> store.message)
    }
    val prefix = if (folder.isEmpty) "" else folder + "/"
    reply.subs("files").zip(reply.longs("modified_ms")).collect {
      case (file, modifiedMs) if StateReader.isDirectlyBelow(prefix, file.string("name")) =>
        val itsPath = new Path(path, file.string("name").stripPrefix(prefix))
        StateReader.statusOf(itsPath, file.long("size_bytes"), modifiedMs)
    }.toArray
  }
}

private[files] object StateReader {
  private val BlockBytes = 64L * 1024 * 1024

  def statusOf(path: Path, size: Long, modifiedMs: Long): FileStatus =
    new FileStatus(size, false, 1, BlockBytes, modifiedMs, path)

  /** `prefix`: a folder with its slash, or "". */
  def isDirectlyBelow(prefix: String, name: String): Boolean =
    name.startsWith(prefix) && !name.stripPrefix(prefix).contains("/")
}
