package rhino.spark.modify

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeMap, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.Strategy
import org.apache.spark.sql.execution.SparkPlan

/**
 * Plans the nodes of points. Spark's operators become Java classes with numbers in their names. One operator of Spark
 * more would be a class more, and all others would have another number, so each would have to be compiled again.
 */
private[spark] object PointStrategy extends Strategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case PointFilter(condition, child) => Seq(PointFilterExec(condition, planLater(child)))
    case join @ PointJoin(_, _, _, left, table: PointTable) => Seq(PointJoinExec.of(join, table, planLater(left)))
    case other => columns(other).map(its => PointColumnsExec(its.values, its.output, planLater(its.rows))).toSeq
  }

  /** `output`, made of these `values` from rows. */
  private case class Columns(values: Seq[Expression], output: Seq[Attribute], rows: LogicalPlan)

  private def columns(plan: LogicalPlan): Option[Columns] = plan match {
    case its: PointColumns =>
      Some(over(PointColumns.replaced(its.child.output, its.former, its.values), its.output, its.child))
    // Drops what only the point needs.
    case Project(kept, its @ (_: PointFilter | _: PointColumns | _: PointJoin)) if isPlain(kept) =>
      Some(over(kept, kept.map(_.toAttribute), its))
    case _ => None
  }

  /** One operator instead of two, unless a row would then compute a value several times. */
  private def over(values: Seq[Expression], output: Seq[Attribute], child: LogicalPlan): Columns =
    columns(child) match {
      case Some(its) if isPlain(values) || isPlain(its.values) =>
        val made = AttributeMap(its.output.zip(its.values))
        Columns(values.map(_.transform { case a: Attribute => made.getOrElse(a, a) }), output, its.rows)
      case _ => Columns(values, output, child)
    }

  private def isPlain(values: Seq[Expression]): Boolean = values.forall(_.isInstanceOf[Attribute])
}
