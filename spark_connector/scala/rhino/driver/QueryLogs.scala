package rhino.spark.driver

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitLog, OffsetSeqLog}

/**
 * Spark's logs in a query checkpoint, for reading only. By default Spark makes the folder of a log when it is opened.
 * Rhino may open it when the query has stopped and its user is deleting the checkpoint, which must stay deleted. A log
 * without a folder is empty.
 */
private[driver] class QueryLogs(session: SparkSession, checkpoint: Path) {
  lazy val commits = new CommitLog(session, path("commits"), readOnly = true)
  lazy val offsets = new OffsetSeqLog(session, path("offsets"), readOnly = true)

  private def path(name: String): String = new Path(checkpoint, name).toString
}
