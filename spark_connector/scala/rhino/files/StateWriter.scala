package rhino.spark.files

import java.io.{BufferedOutputStream, FileNotFoundException, IOException, OutputStream}
import java.nio.file.{Files, Path => LocalPath}
import java.util.{Collections, LinkedHashMap, Map => JavaMap}
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, FSDataOutputStream, Path}

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.seam.ChangelogLineage
import org.apache.spark.sql.internal.SQLConf

import rhino.spark.load.{StoreMetrics, WarmUp}
import rhino.spark.settings.{ClassNames, RequiredConf}
import rhino.spark.sidecar.{Sidecar, SidecarConnection}
import rhino.spark.store.{StateFileName, StoreId}
import rhino.spark.wire.Schema.{message, Message}

/**
 * Writes state files for Spark's RocksDB file manager. New files are created or hard-linked in the session's inbox. The
 * rename of a temporary file to its final name is the commit point and becomes `Commit` (Rhino 4.2.2, phase 2). A
 * failure throws and never returns false: Spark treats false as success when the destination exists.
 *
 * Rhino does not store Spark's file checksums (`checkpoint.fileChecksum.enabled`, on by default). The sidecar has its
 * own checksums, and Spark can read a file without one.
 */
private[rhino] class StateWriter(conf: Configuration, statistics: => FileSystem.Statistics) {
  private val SnapshotPatience = 10 // no task waits for a commit in the background: a member may come back meanwhile
  private val BufferBytes = 1 << 16
  private val temporary = new ConcurrentHashMap[(StoreId, String), LocalPath]()

  private def sidecar: SidecarConnection = Sidecar.get

  def create(store: StoreId, name: String): FSDataOutputStream =
    if (StateFileName.isChecksum(name)) new FSDataOutputStream(OutputStream.nullOutputStream(), statistics)
    else {
      val file = InboxFile.path(sidecar.session())
      val stream = new BufferedOutputStream(Files.newOutputStream(file), BufferBytes)
      temporary.put((store, name), file)
      new FSDataOutputStream(stream, statistics)
    }

  /** The file that was created under this name and is neither committed nor deleted. */
  def unfinished(path: Path, store: StoreId, name: String): Option[FileStatus] =
    Option(temporary.get((store, name))).map { file =>
      StateReader.statusOf(path, Files.size(file), Files.getLastModifiedTime(file).toMillis)
    }

  /**
   * The commit point: renames `from`, written here, to `name`. After a failure the file is gone, and Spark writes it
   * again.
   */
  def commit(store: StoreId, from: String, name: String): Unit = if (!StateFileName.isChecksum(name)) {
    val file = temporary.remove((store, from))
    if (file == null)
      throw new FileNotFoundException(s"$store/$from: no such file was written here; cannot commit $name")
    discardedOnFailure(new InboxFile(file))(commit(store, _, name))
  }

  private def commit(store: StoreId, file: InboxFile, name: String): Unit = {
    if (StateFileName.version(name).isEmpty)
      throw new IOException(s"$store/$name cannot be kept by Rhino: ${StateWriter.wayOut(name)}")
    val isChangelog = StateFileName.isChangelog(name)
    val lineage = if (isChangelog) lineageOf(store, file.newestPath) else Seq.empty
    val started = System.nanoTime()
    val inTask = isChangelog || TaskContext.get() != null // also for a snapshot that Spark forces
    val timeoutS = Sidecar.settings.commitTimeoutS * (if (inTask) 1 else SnapshotPatience)
    sidecar.call("Commit", "CommitRequest", timeoutS, s"commit $store/$name", withProgress = true) { session =>
      Seq("session_id" -> session.id, "store" -> store.message, "name" -> name,
        "inbox_name" -> file.in(session).getFileName.toString, "lineage" -> lineage, "timeout_s" -> timeoutS)
    }
    WarmUp.committed(store, name)
    if (isChangelog) StoreMetrics.committed(store, (System.nanoTime() - started) / 1000000)
  }

  private def lineageOf(store: StoreId, file: LocalPath): Seq[Message] =
    ChangelogLineage.read(new Path(file.toUri), ChangelogCodecs.of(store), conf).map { case (version, id) =>
      message("Version", "version" -> version, "checkpoint_id" -> id)
    }

  /** Adds an immutable file of Spark by a hard link. */
  def add(source: LocalPath, store: StoreId, name: String): Unit =
    discardedOnFailure(new InboxFile(InboxFile.path(sidecar.session()))) { file =>
      val timeoutS = Sidecar.settings.commitTimeoutS
      sidecar.call("Add", "AddRequest", timeoutS, s"add $store/$name", withProgress = true) { session =>
        InboxFile.linkOrCopy(source, file.in(session))
        Seq("session_id" -> session.id, "store" -> store.message, "name" -> name, "inbox_name" -> file.name)
      }
    }

  private def discardedOnFailure(file: InboxFile)(act: InboxFile => Unit): Unit =
    try act(file)
    catch { case error: Throwable => file.discard(); throw error }

  /**
   * Deletes a temporary file. Ignores deletes of stored files: the sidecar collects them by the driver's published
   * floors.
   */
  def discard(store: StoreId, name: String): Unit = {
    val file = temporary.remove((store, name))
    if (file != null) Files.deleteIfExists(file)
  }
}

private[rhino] object StateWriter {

  /** Says how to get names that Rhino can keep. */
  def wayOut(name: String): String =
    if (StateFileName.isOfMemoryProvider(name)) {
      "it is a file of Spark's in-memory provider. Set spark.sql.streaming.stateStore.providerClass to " +
        ClassNames.SparkProvider
    } else {
      s"expected <version>_<id>.changelog or .zip, which ${RequiredConf.Format}=2 gives. Format 1 reuses file names " +
        "on retries, so a late task could overwrite another's version"
    }
}

/**
 * Refuses snapshots of a query that is gone. A maintenance thread may still write one into a folder that the next query
 * uses as its checkpoint. Only this executor's own files are known, and only the newest ones.
 */
private[rhino] class LateSnapshots(knownMax: Int) {
  private val jobs = Collections.synchronizedMap(new LinkedHashMap[String, String] { // by the unique id of a version
    override def removeEldestEntry(eldest: JavaMap.Entry[String, String]): Boolean = size > knownMax
  })

  /**
   * Call before a file is committed. Throws IOException for a snapshot of a version that was written for another job.
   */
  def check(store: StoreId, name: String): Unit = for ((_, id) <- StateFileName.version(name)) {
    if (StateFileName.isChangelog(name)) jobs.put(id, store.job)
    else Option(jobs.get(id)).filter(_ != store.job).foreach { job =>
      throw new IOException(
        s"$name is a snapshot of query $job, whose checkpoint is now one of query ${store.job}: not kept")
    }
  }
}

/** Those of this JVM. A snapshot follows its changelog within a few batches. */
private[rhino] object LateSnapshots extends LateSnapshots(knownMax = 10000)

/** The compression codecs of the changelogs of stores that were opened in this JVM. */
private[rhino] object ChangelogCodecs {
  private val ofStores = new ConcurrentHashMap[StoreId, String]()

  def put(store: StoreId, codec: String): Unit = ofStores.put(store, codec)

  /** With Spark's own provider, which announces no store, the codec is the one in the settings of the calling task. */
  def of(store: StoreId): String = Option(ofStores.get(store)).getOrElse(SQLConf.get.stateStoreCompressionCodec)
}
