package org.apache.spark.sql.execution.streaming.state
package seam

import java.lang.reflect.Constructor
import java.util.UUID

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset}
import org.apache.spark.sql.execution.{CommandExecutionMode, QueryExecution}
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, WatermarkPropagator}
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * A batch that is planned and never committed: like a batch of a query, with another logical plan. Planning it writes
 * nothing, because it is not the first batch of a run, and changes nothing of the query: its watermarks are its own.
 *
 * The versions of Spark differ in the parameters of `IncrementalExecution`. So each argument is found by its type.
 */
object TrialBatch {
  private val constructor: Constructor[_] = classOf[IncrementalExecution].getConstructors.maxBy(_.getParameterCount)

  /** Throws UnsupportedOperationException if this Spark has a parameter of another type. */
  def like(batch: IncrementalExecution, plan: LogicalPlan): QueryExecution = {
    // The first map has the names of state files, which no generated code has. Spark changes it at the end of a batch.
    val maps = Iterator[Any](mutable.Map.empty[Long, Array[Array[String]]], batch.stateSchemaMetadatas)
    val arguments = constructor.getParameterTypes.toSeq.map[Any] {
      case its if its == classOf[SparkSession] => batch.sparkSession
      case its if its == classOf[LogicalPlan] => plan
      case its if its == classOf[OutputMode] => batch.outputMode
      case its if its == classOf[String] => batch.checkpointLocation
      case its if its == classOf[UUID] => batch.runId // some versions also want the id of the query
      case its if its == classOf[Long] => batch.currentBatchId
      case its if its == classOf[Option[_]] => batch.prevOffsetSeqMetadata
      case its if its == classOf[WatermarkPropagator] => WatermarkPropagator(batch.sparkSession.sessionState.conf)
      case its if its == classOf[Boolean] => false // the first batch, the last batch, real-time mode
      case its if its == classOf[mutable.Map[_, _]] => maps.next()
      case its if its == classOf[Enumeration#Value] => CommandExecutionMode.SKIP
      case its if its.isInstance(batch.offsetSeqMetadata) => batch.offsetSeqMetadata
      case its => throw new UnsupportedOperationException(s"IncrementalExecution has a parameter of ${its.getName}")
    }
    constructor.newInstance(arguments.map(_.asInstanceOf[AnyRef]): _*).asInstanceOf[QueryExecution]
  }

  /**
   * A source that answers from a plan of a batch, and has no more than `rows` rows in each partition (or one columnar
   * batch). The source itself is not asked: not every one expects two threads. Its partitions may be read again: Spark
   * does so, too, when it tries a task once more.
   */
  def source(planned: MicroBatchScanExec, rows: Int): MicroBatchStream = new MicroBatchStream {
    override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
      planned.inputPartitions.toArray
    override def createReaderFactory(): PartitionReaderFactory = new FewRows(planned.readerFactory, rows)
    override def latestOffset(): Offset = throw new UnsupportedOperationException
    override def initialOffset(): Offset = throw new UnsupportedOperationException
    override def deserializeOffset(json: String): Offset = throw new UnsupportedOperationException
    override def commit(end: Offset): Unit = throw new UnsupportedOperationException
    override def stop(): Unit = throw new UnsupportedOperationException
  }
}

private class FewRows(whole: PartitionReaderFactory, rows: Int) extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new FewRows.Reader(whole.createReader(partition), rows)
  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    new FewRows.Reader(whole.createColumnarReader(partition), 1)
  override def supportColumnarReads(partition: InputPartition): Boolean = whole.supportColumnarReads(partition)
}

private object FewRows {
  class Reader[T](whole: PartitionReader[T], limit: Int) extends PartitionReader[T] {
    private var read = 0

    override def next(): Boolean = {
      read += 1
      read <= limit && whole.next()
    }
    override def get(): T = whole.get()
    override def close(): Unit = whole.close()
  }
}
