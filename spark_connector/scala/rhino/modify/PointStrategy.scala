package rhino.spark.modify

import org.apache.spark.sql.catalyst.expressions.{Attribute, ExpressionSet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.classic.Strategy
import org.apache.spark.sql.execution.SparkPlan

/** Plans the nodes of points. */
private[spark] object PointStrategy extends Strategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case PointFilter(condition, child) => Seq(PointFilterExec(condition, planLater(child)))
    case PointColumns(former, values, made, child) => Seq(PointColumnsExec(former, values, made, planLater(child)))
    case PointFence(child) => Seq(planLater(child))
    case _ => Nil
  }
}

/**
 * Above and below a join at a point. It is not executed. Spark moves nothing of the join below it, and infers nothing
 * from what is true of the joined rows.
 */
private[spark] case class PointFence(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected lazy val validConstraints: ExpressionSet = ExpressionSet()
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}
