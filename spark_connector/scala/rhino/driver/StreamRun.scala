package rhino.spark.driver

import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.JobExecutionStatus
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.checkpointing.{CommitLog, OffsetSeqLog}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, MadePlan}

/** A run as Spark shows it. */
private[driver] class StreamRun(stream: StreamExecution) extends QueryRun {
  private val session = Internals.session(stream)
  private val logs = new QueryLogs(session, new Path(stream.resolvedCheckpointRoot))

  override def job: String = stream.id.toString
  override def runId: UUID = stream.runId
  override def name: String = Option(stream.name).getOrElse("")
  override def checkpoint: String = stream.resolvedCheckpointRoot
  override def isTemporary: Boolean = Internals.isTemporary(stream)

  /**
   * The provider of the checkpoint is in the session of an execution; before the first one, the query's own is known.
   */
  override def providerClass: String =
    Option(stream.lastExecution).map(_.sparkSession).getOrElse(session).sessionState.conf.stateStoreProviderClass

  override def hasExecution: Boolean = stream.lastExecution != null
  override def execution: AnyRef = stream.lastExecution
  override def executedBatch: Long = stream.lastExecution.currentBatchId
  override def plan: Option[SparkPlan] = Option(stream.lastExecution).flatMap(MadePlan.of)

  /** Spark makes it when it has logged a batch. */
  override def lastCommit: AnyRef = stream.committedOffsets

  override def computedBatches: Seq[Long] =
    stream.recentProgress.toSeq.filter(_.durationMs.containsKey("addBatch")).map(_.batchId)

  private def progressOf(batch: Long) =
    stream.recentProgress.find(p => p.batchId == batch && p.durationMs.containsKey("addBatch"))
  override def inputRows(batch: Long): Long = progressOf(batch).map(_.numInputRows).getOrElse(0L)
  override def batchSeconds(batch: Long): Double =
    progressOf(batch).flatMap(p => Option(p.durationMs.get("triggerExecution"))).map(_ / 1e3).getOrElse(0.0)

  override def lags(batch: Long): Seq[SourceLag] =
    progressOf(batch).toSeq.flatMap { progress =>
      val sources = progress.sources.toSeq
      SourceLag.names(sources.map(_.description)).zip(sources).flatMap { case (name, source) =>
        val metrics = Option(source.metrics).map(_.asScala.toMap).getOrElse(Map.empty[String, String])
        SourceLag.of(name, source.startOffset, source.endOffset, source.latestOffset, metrics)
      }.take(SourceLag.ReportedMax)
    }

  override def triggerSeconds: Double = stream.trigger match {
    case interval: Product if trigger == StreamRun.IntervalTrigger =>
      interval.productElement(0).asInstanceOf[Long] / 1e3
    case _ => 0.0
  }

  override def endsItself: Boolean = StreamRun.EndingTriggers.exists(trigger.startsWith)
  override def isRealTime: Boolean = trigger == StreamRun.RealTimeTrigger
  private def trigger: String = stream.trigger.getClass.getSimpleName

  override def committedIds(batch: Long): Option[Map[Long, Seq[Seq[String]]]] =
    logs.commits.get(batch).map { metadata =>
      metadata.stateUniqueIds.getOrElse(Map.empty).map { case (operator, partitions) =>
        operator -> partitions.toSeq.map(_.toSeq)
      }
    }

  override def newestCommit: Option[Long] = logs.commits.getLatestBatchId()
  override def newestOffsets: Option[Long] = logs.offsets.getLatestBatchId()

  override def checkpointFiles(batch: Long): Seq[(String, Array[Byte])] = {
    val root = new Path(checkpoint)
    CheckpointFiles.read(root.getFileSystem(session.sessionState.newHadoopConf()), root, batch)
  }

  override def hadState: Boolean = logs.commits.getLatest().exists(_._2.stateUniqueIds.exists(_.nonEmpty))

  override def retainedBatches: Int = session.sessionState.conf.minBatchesToRetain
  override def error: String = stream.exception.map(_.getMessage).getOrElse("")

  override def cancel(reason: String): Unit = {
    val context = stream.sparkSession.sparkContext
    val tracker = context.statusTracker
    val running = tracker.getJobIdsForGroup(runId.toString)
      .exists(id => tracker.getJobInfo(id).exists(_.status() == JobExecutionStatus.RUNNING))
    if (running) context.cancelJobGroup(runId.toString, reason)
  }
}

private[driver] object StreamRun {
  // Simple names, because the packages of these classes differ by Spark version.
  private val EndingTriggers = Seq("OneTimeTrigger", "AvailableNowTrigger")
  private val RealTimeTrigger = "RealTimeTrigger"
  private val IntervalTrigger = "ProcessingTimeTrigger"

  /** The driver's streaming queries. */
  def running: Seq[QueryRun] = Internals.runningQueries.map(new StreamRun(_))
}

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
