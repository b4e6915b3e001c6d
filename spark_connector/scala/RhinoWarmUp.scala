package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * One load per executor before any is needed. The first in a JVM takes several times as long as later ones, for classes
 * to be loaded and compiled, and it would be the one that a handover or a recovery waits for. So Spark's maintenance
 * thread loads a version of some store once, as a task would, beside the store and from files that are here.
 */
private[state] object RhinoWarmUp extends Logging {
  private val Changelog = """(\d+)_([^/]+)\.changelog""".r
  private val begun = new AtomicBoolean(false)
  private val snapshots = ConcurrentHashMap.newKeySet[RhinoStore]()
  private val newest = new ConcurrentHashMap[RhinoStore, (Long, String)]()

  /** A changelog or snapshot that this executor has committed. */
  def committed(store: RhinoStore, name: String): Unit = if (!begun.get) name match {
    case Changelog(version, id) => newest.put(store, version.toLong -> id)
    case _ => snapshots.add(store)
  }

  /** Loads the newest version of `store` once it has a snapshot; `open` makes a database apart from the store's own. */
  def after(store: RhinoStore)(open: => RocksDB): Unit =
    Option(newest.get(store)).filter(_ => snapshots.contains(store) && begun.compareAndSet(false, true)).foreach {
      case (version, id) =>
        newest.clear()
        snapshots.clear()
        val started = System.nanoTime()
        try {
          val database = open
          try database.load(version, Some(id), readOnly = true).rollback()
          finally database.close()
          logInfo(s"Rhino: loaded $store once to warm up, in ${(System.nanoTime() - started) / 1000000} ms")
        } catch {
          case NonFatal(error) => logWarning("Rhino: could not warm up; the first real load will take longer", error)
        }
    }
}
