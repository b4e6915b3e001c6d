package rhino.spark.modify

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.Strategy
import org.apache.spark.sql.execution.SparkPlan

/**
 * Plans the nodes of points. Spark's operators become Java classes with numbers in their names. One operator of Spark
 * more would be a class more, and all others would have another number, so each would have to be compiled again.
 */
private[spark] object PointStrategy extends Strategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    // Drops what only the point needs.
    case Project(columns, its) if of(its).nonEmpty && columns.forall(_.isInstanceOf[Attribute]) =>
      of(its).map(PointColumnsExec(columns, columns.map(_.toAttribute), _)).toSeq
    case its => of(its).toSeq
  }

  private def of(plan: LogicalPlan): Option[SparkPlan] = Some(plan).collect {
    case PointFilter(condition, child) => PointFilterExec(condition, planLater(child))
    case columns: PointColumns => PointColumnsExec.of(columns, planLater(columns.child))
    case join @ PointJoin(_, _, _, left, table: PointTable) => PointJoinExec.of(join, table, planLater(left))
  }
}
