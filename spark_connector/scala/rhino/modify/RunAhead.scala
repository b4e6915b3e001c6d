package rhino.spark.modify

import scala.util.Try

import org.apache.spark.{NarrowDependency, Partition, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonUDF, UserDefinedExpression}
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec
import org.apache.spark.sql.execution.python.EvalPythonExec
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode

/**
 * Which parts of a plan an executor may run over a few rows, so that a JVM has not only compiled, but also loaded,
 * verified and translated their code when a batch needs it. The rows are thrown away.
 */
private[spark] object RunAhead {

  /**
   * The largest parts that read nothing but sources, and have only operators and functions of Spark: code of users may
   * count on it that a row comes once. `blanks`: code of Python functions that are not of users.
   */
  def parts(plan: SparkPlan, blanks: Set[Seq[Byte]] = Set.empty): Seq[SparkPlan] =
    if (safe(plan, blanks)) Seq(plan).filter(_.exists(_.isInstanceOf[WholeStageCodegenExec]))
    else plan.children.flatMap(parts(_, blanks))

  private def safe(plan: SparkPlan, blanks: Set[Seq[Byte]]): Boolean = {
    val known = plan match {
      case _: MicroBatchScanExec | _: WholeStageCodegenExec | _: InputAdapter | _: ColumnarToRowExec => true
      case _: ProjectExec | _: FilterExec | _: ExpandExec | _: GenerateExec | _: UnionExec | _: SortExec => true
      case _: BaseAggregateExec | _: CollectMetricsExec | _: EventTimeWatermarkExec => true
      case _: PointFilterExec | _: PointColumnsExec | _: PointJoinExec | _: EvalPythonExec => true
      case _ => false
    }
    val sources = plan match {
      case join: PointJoinExec => Seq(join.left) // the rows of its table are in the plan
      case other => other.children
    }
    known && plan.expressions.forall(!_.exists(foreign(_, blanks))) && sources.forall(safe(_, blanks))
  }

  /** Of users, or perhaps of users, or a query of its own. */
  private def foreign(expression: Expression, blanks: Set[Seq[Byte]]): Boolean = expression match {
    case udf: PythonUDF => !blanks(PythonCode.of(udf))
    case _: UserDefinedExpression | _: Invoke | _: StaticInvoke | _: ExecSubqueryExpression => true
    case other => !other.deterministic
  }

  private case class Task(index: Int, partitions: Seq[Partition]) extends Partition

  private def of(part: RDD[InternalRow], task: Int): Partition = part.partitions(task % part.partitions.length)

  private class OneOf(part: RDD[InternalRow]) extends NarrowDependency[InternalRow](part) {
    override def getParents(task: Int): Seq[Int] = Seq(task % part.partitions.length)
  }
}

/**
 * One task for each executor, which computes a partition of each of the `parts`. An executor that cannot is no slower
 * than one that did not try, and a failed task would speak against it.
 *
 * @param places the preferred places of each task
 */
private[modify] class RunAhead(parts: Seq[RDD[InternalRow]], places: Seq[Seq[String]])
  extends RDD[Unit](parts.head.context, parts.map(new RunAhead.OneOf(_))) {

  override protected def getPartitions: Array[Partition] =
    places.indices.map(task => RunAhead.Task(task, parts.map(part => RunAhead.of(part, task)))).toArray

  override protected def getPreferredLocations(task: Partition): Seq[String] = places(task.index)

  override def compute(task: Partition, context: TaskContext): Iterator[Unit] =
    parts.zip(task.asInstanceOf[RunAhead.Task].partitions).iterator.map { case (part, partition) =>
      Try(part.iterator(partition, context).foreach(_ => ()))
      ()
    }
}
