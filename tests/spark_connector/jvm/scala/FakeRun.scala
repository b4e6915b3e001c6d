package rhino.spark

import java.util.UUID

import org.apache.spark.sql.execution.SparkPlan

import rhino.spark.driver.{QueryRun, SourceLag}
import rhino.spark.settings.ClassNames

/** A run whose Spark side is played by the test. */
private[spark] class FakeRun(override val job: String, override val providerClass: String = ClassNames.Provider)
  extends QueryRun {
  override val runId: UUID = UUID.randomUUID()
  override val checkpoint: String = s"/ckpt/$job"
  var isTemporary = false
  override val name: String = s"name of $job"
  override val retainedBatches: Int = 2
  var execution: AnyRef = _
  var executedBatch: Long = -1
  var plan: Option[SparkPlan] = None
  var computedBatches: Seq[Long] = Nil
  var committed: Map[Long, Map[Long, Seq[Seq[String]]]] = Map.empty
  var newestOffsets: Option[Long] = None
  var keepsProgress = true
  var unreadable = false
  var cancelled: Seq[String] = Nil
  var error = ""
  var endsItself = false
  var isRealTime = false
  var hadState = false

  override def hasExecution: Boolean = execution != null
  override def lastCommit: AnyRef = committed
  override def inputRows(batch: Long): Long = 100 + batch
  override def batchSeconds(batch: Long): Double = 0.5 + batch
  override def lags(batch: Long): Seq[SourceLag] = Seq(SourceLag("topic", "offsets", 7.0 + batch.toDouble, 3))
  override def triggerSeconds: Double = 5
  override def newestCommit: Option[Long] = committed.keys.maxOption
  override def checkpointFiles(batch: Long): Seq[(String, Array[Byte])] =
    if (unreadable) throw new IllegalStateException("the checkpoint is unreadable")
    else Seq(s"offsets/$batch" -> Array[Byte](1, 2))
  override def cancel(reason: String): Unit = cancelled :+= reason

  override def committedIds(batch: Long): Option[Map[Long, Seq[Seq[String]]]] =
    if (unreadable) throw new IllegalStateException("the commit log is unreadable") else committed.get(batch)

  /** Spark has planned a batch. */
  def planning(its: SparkPlan, batch: Long): this.type = {
    execution = new Object
    executedBatch = batch
    plan = Some(its)
    this
  }

  /** Spark has computed and logged a batch: operator 0 with two partitions. */
  def logging(batch: Long): this.type = {
    newestOffsets = Some(batch)
    executedBatch = executedBatch.max(batch)
    committed += batch -> Map(0L -> Seq(Seq(s"a$batch"), Seq(s"b$batch")))
    progressing(batch)
  }

  /** Spark has the progress of a batch. */
  def progressing(batch: Long): this.type = {
    if (keepsProgress) computedBatches :+= batch
    this
  }
}
