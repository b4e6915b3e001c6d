package rhino.spark.modify

import scala.annotation.tailrec

import org.apache.spark.sql.catalyst.expressions.AttributeSet
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics
import org.apache.spark.sql.execution.{CollectMetricsExec, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.MadePlan

/** Modifications that leave the Java code of the operators of a batch as it is: they have code of their own. */
private[modify] object OwnCode extends AdaptiveSparkPlanHelper {

  /**
   * Whether the Java code of this batch also serves a batch with this modification. It does not if the operators must
   * bring other columns to the point.
   *
   * @param inForce what the batch was planned with
   */
  def isOf(its: Modification, batch: IncrementalExecution, inForce: Seq[Modification]): Boolean = {
    val present = inForce.filter(_.target == its.target).filterNot(_.kind == Modification.Function)
    (its +: present).forall(plain) && MadePlan.of(batch).flatMap(below(its.target, _)).exists {
      case (nodes, rows) =>
        // One that needs other columns has an operator above it that drops them.
        nodes == present.size && (its.removes || needed(its, batch).subsetOf(rows.outputSet))
    }
  }

  private def plain(its: Modification): Boolean =
    Set(Modification.Filter, Modification.Columns)(its.kind) && its.functions.isEmpty

  /** How many nodes of modifications come directly below a point, and what they get their rows from. */
  private def below(point: String, made: SparkPlan): Option[(Int, SparkPlan)] = {
    @tailrec def past(plan: SparkPlan, nodes: Int): (Int, SparkPlan) = plan match {
      case PointFilterExec(_, child) => past(child, nodes + 1)
      case columns: PointColumnsExec => past(columns.child, nodes + 1)
      case other => (nodes, other)
    }
    collectFirst(made) { case node: CollectMetricsExec if node.name == point => past(node.child, 0) }
  }

  /** The columns that it reads or replaces. */
  private def needed(its: Modification, batch: IncrementalExecution): AttributeSet = {
    val (plan, session) = (batch.logical, batch.sparkSession)
    val rows = plan.collectFirst { case point: CollectMetrics if point.name == its.target => point.child }.get
    val sql = PointSql.of(its, plan, session)
    val replaced = rows.output.filter(column => its.columns.contains(column.name))
    val made = session.withActive {
      if (its.kind == Modification.Filter) Seq(sql.condition(its.filter, rows))
      else its.columns.values.map(sql.expression(_, rows)).toSeq
    }
    AttributeSet(replaced ++ made)
  }
}
