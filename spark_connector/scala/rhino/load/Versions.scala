package rhino.spark.load

import java.io.IOException
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.sidecar.Sidecar
import rhino.spark.store.{StateFileName, StoreId}
import rhino.spark.wire.Schema.{Fields, Message}

/** Versions of stores that the sidecar of this node makes loadable (Rhino 4.2.1). */
private[rhino] object Versions extends Logging {
  private val PauseMs = 200L
  private val ReleaseTimeoutS = 10
  private val loading = new ThreadLocal[StoreId]

  /** Prepares the version, runs `load` while all its files are local and pinned, and releases it. */
  def during[T](store: StoreId, version: Long, id: String, counted: Boolean = true)(load: => T): T = {
    prepare(store, version, id, counted)
    val before = loading.get
    loading.set(store)
    try load
    finally {
      loading.set(before)
      release(store, version, id)
    }
  }

  /** Whether this thread is loading a version of `store`. Prepare has found its files, and they are pinned. */
  def isLoading(store: StoreId): Boolean = loading.get == store

  /** Brings the version to this node. */
  def fetch(store: StoreId, version: Long, id: String): Unit = during(store, version, id)(())

  /**
   * Makes the version loadable here and pins it until `release`. With `counted`, it appears in the query's progress.
   */
  def prepare(store: StoreId, version: Long, id: String, counted: Boolean = true): Unit = {
    val started = System.nanoTime()
    def elapsedS: Double = (System.nanoTime() - started) / 1e9
    val timeoutS = Sidecar.settings.prepareTimeoutS
    var reply = ask(store, version, id, timeoutS)
    while (reply.enumName("state") == "PREPARE_STATE_UNAVAILABLE" && elapsedS + PauseMs / 1e3 < timeoutS) {
      Thread.sleep(PauseMs)
      reply = ask(store, version, id, timeoutS - elapsedS)
    }
    if (reply.enumName("state") != "PREPARE_STATE_READY") throw notLoadable(store, version, id, reply)
    val (source, fetched) = (reply.enumName("source"), reply.long("fetched_bytes"))
    logInfo(f"Rhino prepared $store at version $version in ${elapsedS * 1000}%.1f ms ($source, $fetched bytes fetched)")
    if (counted) StoreMetrics.prepared(store, (elapsedS * 1000).toLong, source, fetched)
  }

  private def ask(store: StoreId, version: Long, id: String, timeoutS: Double): Message =
    try {
      val doing = s"prepare $store at version ${version}_$id"
      Sidecar.get.call("Prepare", "PrepareRequest", timeoutS, doing, withProgress = true) { session =>
        Seq("session_id" -> session.id, "versions" -> Seq(store.version(version, id)))
      }
    } catch {
      case error: Throwable => // after a broken call it is unknown whether the version was pinned
        release(store, version, id)
        throw error
    }

  private def notLoadable(store: StoreId, version: Long, id: String, reply: Message): Throwable = {
    val state = reply.enumName("state")
    val error = new IOException(
      s"$store at version ${version}_$id cannot be loaded ($state): ${reply.string("message")}")
    if (state != "PREPARE_STATE_LOST") error
    else Internals.missingStateFile(new Path(store.root, s"${version}_$id"), error)
  }

  /** Releases the pin early. A failure must neither fail a load nor hide its error: pins also end with the session. */
  def release(store: StoreId, version: Long, id: String): Unit =
    try if (Sidecar.get.awayS == 0) uninterrupted { // without a session there are no pins
      val doing = s"release $store at version ${version}_$id"
      Sidecar.get.call("Release", "ReleaseRequest", ReleaseTimeoutS, doing) { session =>
        Seq("session_id" -> session.id, "versions" -> Seq(store.version(version, id)))
      }
    } catch {
      case NonFatal(error) => logWarning("Rhino: pins stay until the session with the sidecar ends", error)
    }

  /**
   * Completes `act` even if this thread is or becomes interrupted, as with a killed task, and restores the interrupt.
   */
  private def uninterrupted(act: => Unit): Unit = {
    var interrupted = Thread.interrupted()
    def interruptedMeanwhile: Boolean = {
      val now = Thread.interrupted()
      interrupted |= now
      now
    }
    try act
    catch {
      case _: InterruptedException => interrupted = true; act
      case NonFatal(_) if interruptedMeanwhile => act
    } finally if (interrupted) Thread.currentThread().interrupt()
  }
}

/**
 * Detects loads by Spark's own provider, which does not announce them. The first file that a task looks up belongs to
 * the version that it loads, so the sidecar prepares that version. It stays pinned until the task ends (Rhino 4.2.1).
 */
private[rhino] object TaskLoads {
  private val prepared = new ConcurrentHashMap[(Long, StoreId), Long]() // by task attempt

  /**
   * Call before a file of a store is looked up or read. Without a task it does nothing: maintenance reads local files.
   */
  def before(store: StoreId, name: String): Unit = for {
    task <- Option(TaskContext.get())
    (version, id) <- StateFileName.version(name)
    key = (task.taskAttemptId(), store)
    if prepared.getOrDefault(key, 0L) < version
  } {
    Versions.prepare(store, version, id)
    if (prepared.put(key, version) == 0L) task.addTaskCompletionListener[Unit](_ => prepared.remove(key))
    task.addTaskCompletionListener[Unit](_ => Versions.release(store, version, id))
  }
}
