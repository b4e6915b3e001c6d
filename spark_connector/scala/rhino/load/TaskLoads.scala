package rhino.spark.load

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

import rhino.spark.store.{StateFileName, StoreId}

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
