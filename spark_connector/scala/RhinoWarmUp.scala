package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * One load per executor before any is needed. The first in a JVM takes several times as long as later ones, for classes
 * to be loaded and compiled, and it would be the one that a handover or a recovery waits for. So as soon as a store has
 * a snapshot, its newest version is loaded once, as a task would load it, beside the store and from files that are here.
 */
private[state] object RhinoWarmUp extends Logging {
  private val Changelog = """(\d+)_([^/]+)\.changelog""".r
  private val begun = new AtomicBoolean(false)
  private val databases = new ConcurrentHashMap[RhinoStore, () => RocksDB]()
  private val newest = new ConcurrentHashMap[RhinoStore, (Long, String)]()

  /** `open` makes a database apart from the store's own. */
  def offer(store: RhinoStore)(open: => RocksDB): Unit = if (!begun.get) databases.put(store, () => open)

  /** A changelog or snapshot that this executor has committed. */
  def committed(store: RhinoStore, name: String): Unit = if (!begun.get) name match {
    case Changelog(version, id) => newest.put(store, version.toLong -> id)
    case _ =>
      for (open <- Option(databases.get(store)); (version, id) <- Option(newest.get(store))) {
        if (begun.compareAndSet(false, true)) {
          databases.clear()
          newest.clear()
          val thread = new Thread(() => load(store, version, id, open), "rhino-warm-up")
          thread.setDaemon(true)
          thread.start()
        }
      }
  }

  private def load(store: RhinoStore, version: Long, id: String, open: () => RocksDB): Unit = {
    val started = System.nanoTime()
    try {
      val database = open()
      try {
        database.load(version, Some(id), readOnly = true)
        database.rollback()
      } finally database.close()
      logInfo(s"Rhino: loaded $store once to warm up, in ${(System.nanoTime() - started) / 1000000} ms")
    } catch {
      case NonFatal(error) => logWarning("Rhino: could not warm up; the first real load will take longer", error)
    }
  }
}
