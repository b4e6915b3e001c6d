package rhino.spark.load

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDB

import rhino.spark.store.{StateFileName, StoreId}

/** A version of a store, and the checkpoint id that Spark has given it. */
private[rhino] case class LoadableVersion(store: StoreId, version: Long, id: String)

/**
 * Loads one version per executor in advance. The first load in a JVM takes several times as long as later ones, because
 * classes are loaded and compiled, and a handover or a recovery would wait for it. So as soon as a store has a
 * snapshot, its newest version is loaded once from local files, into a separate database, in the same way as by a task.
 */
private[rhino] object WarmUp extends Logging {
  private val begun = new AtomicBoolean(false)
  private val databases = new ConcurrentHashMap[StoreId, () => RocksDB]()
  private val newest = new ConcurrentHashMap[StoreId, (Long, String)]()

  /** `open` creates a database that is separate from the store's own. */
  def offer(store: StoreId)(open: => RocksDB): Unit = if (!begun.get) databases.put(store, () => open)

  /** Call after this executor has committed a changelog or snapshot. */
  def committed(store: StoreId, name: String): Unit = if (!begun.get) {
    if (StateFileName.isChangelog(name)) StateFileName.version(name).foreach(newest.put(store, _))
    else
      for (open <- Option(databases.get(store)); (version, id) <- Option(newest.get(store))) {
        if (begin()) {
          val thread = new Thread(() => load(store, version, id, open), "rhino-warm-up")
          thread.setDaemon(true)
          thread.start()
        }
      }
  }

  /**
   * Loads at once what `find` finds, if this executor has not warmed up yet. `find` returns a version, and what creates
   * a database for it.
   */
  def now(find: => Option[(LoadableVersion, () => RocksDB)]): Unit = if (!begun.get) {
    try find.filter(_ => begin()).foreach { case (its, open) => load(its.store, its.version, its.id, open) }
    catch {
      case NonFatal(error) => logWarning("Rhino found nothing to warm up with; the first load will take longer", error)
    }
  }

  /** Whether the caller is the first in this executor that may load a version to warm up. */
  private def begin(): Boolean = begun.compareAndSet(false, true) && {
    databases.clear()
    newest.clear()
    true
  }

  private def load(store: StoreId, version: Long, id: String, open: () => RocksDB): Unit = {
    val started = System.nanoTime()
    try {
      val database = open()
      try {
        database.load(version, Some(id), readOnly = true)
        database.rollback()
      } finally database.close()
      logInfo(s"Rhino loaded $store once to warm up, in ${(System.nanoTime() - started) / 1000000} ms")
    } catch {
      case NonFatal(error) => logWarning("Rhino could not warm up; the first real load will take longer", error)
    }
  }
}
