package rhino.spark.modify

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/**
 * Gives columns of a point other values. Unlike Spark's `Project`, it says nothing about them to the optimizer, and
 * the other columns pass without being named here: so those that nobody needs are pruned as they were without it.
 *
 * @param former columns that do not come out
 * @param values what comes out instead, in the same order, as the columns `made`
 */
private[spark] case class PointColumns(
    former: Seq[Attribute], values: Seq[Expression], made: Seq[Attribute], child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = PointColumns.replaced(child.output, former, made)
  override def producedAttributes: AttributeSet = AttributeSet(made)
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}

private[spark] object PointColumns {
  def replaced[E >: Attribute](columns: Seq[Attribute], former: Seq[Attribute], by: Seq[E]): Seq[E] = {
    val others = former.map(_.exprId).zip(by).toMap
    columns.map(column => others.getOrElse(column.exprId, column))
  }
}

/**
 * The code of its values is its own, so the Java code of the operators around it stays as it is.
 *
 * @param values one for each column of the output, from the columns of the child
 */
private[spark] case class PointColumnsExec(values: Seq[Expression], output: Seq[Attribute], child: SparkPlan)
  extends UnaryExecNode {

  override def producedAttributes: AttributeSet = outputSet -- child.outputSet

  /** As without it: otherwise a stateful operator above would get a shuffle that it does not need. */
  override def outputPartitioning: Partitioning = child.outputPartitioning match {
    case its: Expression if !its.references.subsetOf(outputSet) => UnknownPartitioning(0)
    case its => its
  }

  override protected def doExecute(): RDD[InternalRow] = {
    val (its, columns) = (values, child.output)
    child.execute().mapPartitionsWithIndex(
      (partition, rows) => {
        val projection = UnsafeProjection.create(its, columns)
        projection.initialize(partition)
        rows.map(projection)
      },
      preservesPartitioning = true)
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}
