package rhino.spark.modify.comparison

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
import org.apache.spark.sql.catalyst.expressions.{Alias, Expression, KnownNotNull, NamedArgumentExpression, UnsafeRow, WindowExpression}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LogicalRDD, QueryExecution}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.datasources.v2.{MicroBatchScanExec, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.types.DataType

import rhino.spark.modify.points.Overlay
import rhino.spark.modify.records.Modification

/**
 * What a function was given for some rows of a committed batch. The partitions of the source are those that the batch
 * has planned: its source is not asked for anything, because it may not expect another thread.
 *
 * @param function the function as the batch had it
 * @param rows     its arguments
 * @param types    their types
 */
private[modify] case class Sample[F <: Expression](function: F, rows: Seq[InternalRow], types: Seq[DataType])

private[modify] object Sample extends AdaptiveSparkPlanHelper {
  private val BytesMax = 4L << 20
  private val Steps = Seq(1, 4, 16) // partitions that are asked at once, as long as rows are missing

  /**
   * `wanted`: which calls are meant. `inForce`: what the batch was planned with. Throws IllegalArgumentException if
   * rows cannot be had.
   */
  def of[F <: Expression](name: String, most: Int, batch: IncrementalExecution, inForce: Seq[Modification])(
      wanted: PartialFunction[Expression, F]): Sample[F] = {
    val session = batch.sparkSession
    val plan = session.sessionState.analyzer.execute(Overlay.of(batch, inForce))
    val (function, below) = plan.collectFirst {
      case node if node.children.size == 1 && calls(node, wanted).nonEmpty =>
        calls(node, wanted).head -> node.children.head
    }.getOrElse(refuse(s"$name is called where rows of several inputs meet"))
    val arguments = function.children.map {
      case NamedArgumentExpression(_, value) => value
      case KnownNotNull(value) => value // the query does not call the function for null, see JarComparison
      case value => value
    }
    if (arguments.exists(_.exists(of => of.isInstanceOf[AggregateExpression] || of.isInstanceOf[WindowExpression])))
      refuse(s"$name gets values of an aggregation")
    if (below.exists(node => node.isStreaming && UnsupportedOperationChecker.isStatefulOperation(node)))
      refuse(s"the rows of $name come out of a stateful operator")
    val project = Project(arguments.map(argument => Alias(argument, "argument")()), readable(below, batch, session))
    val rows = new QueryExecution(session, project) {
      override def assertSupported(): Unit = () // parts of the plan call themselves streaming, and have their rows
    }.toRdd
    Sample(function, take(rows, most), arguments.map(_.dataType))
  }

  private def calls[F <: Expression](node: LogicalPlan, wanted: PartialFunction[Expression, F]): Seq[F] =
    node.expressions.flatMap(_.collect(wanted))

  /** The plan without what only a streaming query can run. */
  private def readable(plan: LogicalPlan, batch: QueryExecution, session: SparkSession): LogicalPlan =
    plan.transformUp {
      case relation: StreamingDataSourceV2ScanRelation => LogicalRDD(relation.output, scanned(relation, batch))(session)
      case none: LocalRelation => none.copy(isStreaming = false)
      case watermark: EventTimeWatermark => watermark.child
      case point: CollectMetrics => point.child
    }

  private def scanned(relation: StreamingDataSourceV2ScanRelation, batch: QueryExecution): RDD[InternalRow] =
    collectFirst(batch.executedPlan) {
      case scan: MicroBatchScanExec if (scan.stream eq relation.stream) && !scan.supportsColumnar => scan.inputRDD
    }.getOrElse(refuse(s"the rows of ${relation.name} cannot be read again"))

  private def take(rows: RDD[InternalRow], most: Int): Seq[InternalRow] = {
    val starts = Steps.scanLeft(0)(_ + _)
    Steps.zip(starts).foldLeft(Seq.empty[InternalRow]) { case (found, (size, first)) =>
      val partitions = first until math.min(first + size, rows.getNumPartitions)
      if (found.size >= most || partitions.isEmpty) found
      else {
        val (missing, bytes) = (most - found.size, BytesMax / partitions.size)
        val take = (its: Iterator[InternalRow]) => taken(its, missing, bytes)
        found ++ rows.sparkContext.runJob(rows, take, partitions).toSeq.flatten.take(missing)
      }
    }
  }

  private def taken(rows: Iterator[InternalRow], most: Int, bytes: Long): Array[InternalRow] = {
    var left = bytes
    rows.take(most).map(_.asInstanceOf[UnsafeRow].copy()).takeWhile { row =>
      left -= row.getSizeInBytes
      left >= 0
    }.toArray[InternalRow]
  }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
