package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.DefaultFormats
import org.json4s.jackson.JsonMethods

import org.apache.spark.TaskContext

/** Names of jobs: the id in the `metadata` file of a query checkpoint. */
private[state] object RhinoJob {
  private val known = new ConcurrentHashMap[Path, String]()
  private val ofTasks = new ConcurrentHashMap[(Path, Long), String]() // by task attempt

  /**
   * The job of the query checkpoint `root`. What was read once is good while a task of that very query asks, and for
   * threads that belong to no task, such as Spark's maintenance; any other task reads anew, once: a new query may have
   * begun in the same folder.
   */
  def of(root: Path, conf: Configuration): String = {
    val task = Option(TaskContext.get())
    val running = task.flatMap(context => Option(context.getLocalProperty("sql.streaming.queryId")))
    Option(known.get(root)).filter(job => task.isEmpty || running.contains(job))
      .orElse(task.flatMap(context => Option(ofTasks.get((root, context.taskAttemptId())))))
      .getOrElse {
        val found = read(root, conf)
        known.put(root, found)
        task.foreach { context =>
          val key = (root, context.taskAttemptId())
          ofTasks.put(key, found)
          context.addTaskCompletionListener[Unit](_ => ofTasks.remove(key))
        }
        found
      }
  }

  private def read(root: Path, conf: Configuration): String = {
    val metadata = new Path(root, "metadata")
    val stream = metadata.getFileSystem(conf).open(metadata)
    try {
      implicit val formats: DefaultFormats.type = DefaultFormats
      (JsonMethods.parse(new String(stream.readAllBytes(), "UTF-8")) \ "id").extract[String]
    } finally stream.close()
  }
}
