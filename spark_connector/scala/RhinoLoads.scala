package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

/**
 * Loads of Spark's own provider, which says nothing before it loads: the first file of a version that a task touches is
 * the newest one, so that is what the sidecar prepares; it stays pinned until the task ends (Rhino 4.2.1).
 */
private[state] object RhinoLoads {
  private val prepared = new ConcurrentHashMap[(Long, RhinoStore), Long]() // by task attempt

  /** Before a file of a store is looked up or read. Outside of tasks nothing is prepared: maintenance reads what is here. */
  def before(store: RhinoStore, name: String): Unit = for {
    task <- Option(TaskContext.get())
    (version, id) <- RhinoVersions.ofFile(name)
    key = (task.taskAttemptId(), store)
    if prepared.getOrDefault(key, 0L) < version
  } {
    RhinoVersions.prepare(store, version, id)
    if (prepared.put(key, version) == 0L) task.addTaskCompletionListener[Unit](_ => prepared.remove(key))
    task.addTaskCompletionListener[Unit](_ => RhinoVersions.release(store, version, id))
  }
}
