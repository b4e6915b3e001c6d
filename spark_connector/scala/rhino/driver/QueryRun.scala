package rhino.spark.driver

import java.util.UUID

import org.apache.spark.sql.execution.SparkPlan

/**
 * What Rhino reads of a query's run on this driver, and its one way to end it. Reading creates nothing in the query
 * checkpoint. `StreamRun` asks Spark; tests have their own.
 */
private[spark] trait QueryRun {
  def job: String
  def runId: UUID

  /** "" if the query has none. */
  def name: String
  def checkpoint: String

  /** Whether Spark has made the checkpoint, and deletes it after the run. */
  def isTemporary: Boolean

  /** The state store provider that runs, or that will run. */
  def providerClass: String

  /** Whether Spark has begun to plan a batch. */
  def hasExecution: Boolean

  /** Identity of the newest execution. null before the first one. */
  def execution: AnyRef

  /** Number of the batch that was planned last. Only with `hasExecution`. */
  def executedBatch: Long

  /** The plan of the newest execution, once Spark has made it. */
  def plan: Option[SparkPlan]

  /** Identity of the newest commit: another object after each batch in the commit log. */
  def lastCommit: AnyRef

  /** Batches that have computed something, among the triggers whose progress Spark keeps. It may keep none. */
  def computedBatches: Seq[Long]

  /** Input rows of a batch, and the seconds that it took; 0 if Spark does not know the batch any more. */
  def inputRows(batch: Long): Long
  def batchSeconds(batch: Long): Double

  /** What the sources that report it were behind when a batch began. */
  def lags(batch: Long): Seq[SourceLag]

  /** The trigger interval; 0 if there is none. */
  def triggerSeconds: Double

  /** Whether the query ends by itself when its present data is processed. */
  def endsItself: Boolean

  /** Whether offsets are logged at the end of a batch. */
  def isRealTime: Boolean

  /**
   * By operator, for each partition, the checkpoint ids of its stores. None when the commit log does not have the
   * batch.
   */
  def committedIds(batch: Long): Option[Map[Long, Seq[Seq[String]]]]
  def newestCommit: Option[Long]
  def newestOffsets: Option[Long]

  /** The files of the checkpoint, without state, that belong to a batch: paths below the checkpoint, and content. */
  def checkpointFiles(batch: Long): Seq[(String, Array[Byte])]

  /** Whether the newest batch in the commit log had state. */
  def hadState: Boolean

  /** Batches that Spark keeps, and so the distance of the floors (`minBatchesToRetain`). */
  def retainedBatches: Int

  /** The message of the error that ended the query, or "". */
  def error: String

  /** Cancels the jobs that run now. Its user sees the reason of the cancelled job. */
  def cancel(reason: String): Unit
}
