package rhino.spark.modify

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, Predicate, SortOrder}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.metric.SQLMetrics

/**
 * Keeps the rows of a point for which the condition is true. Unlike Spark's `Filter`, it says nothing about them to the
 * optimizer and does not move. From a filter on the key of a join, Spark would infer one for the other input of the
 * join: rows that its state lacks when this filter is removed.
 */
private[spark] case class PointFilter(condition: Expression, child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}

/** The code of its condition is its own, so the Java code of the operators around it stays as it is. */
private[spark] case class PointFilterExec(condition: Expression, child: SparkPlan) extends UnaryExecNode {
  override lazy val metrics = Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val (its, columns, count) = (condition, child.output, longMetric("numOutputRows"))
    child.execute().mapPartitionsWithIndex(
      (partition, rows) => {
        val predicate = Predicate.create(its, columns)
        predicate.initialize(partition)
        rows.filter { row =>
          val passes = predicate.eval(row)
          if (passes) count += 1
          passes
        }
      },
      preservesPartitioning = true)
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}
