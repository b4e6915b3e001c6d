package rhino.spark.files

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.DefaultFormats
import org.json4s.jackson.JsonMethods

import org.apache.spark.TaskContext

/** The job of a query checkpoint: the id in its `metadata` file. */
private[rhino] object CheckpointJobs {
  private val known = new ConcurrentHashMap[Path, String]()
  private val ofTasks = new ConcurrentHashMap[(Path, Long), String]() // by task attempt

  /**
   * Returns the job of the query checkpoint `root`. A cached id is used for tasks of the same query, and for threads
   * without a task, such as Spark's maintenance. Any other task reads the id again, once, because a new query may have
   * started in the same folder.
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
