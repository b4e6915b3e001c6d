package rhino.spark.modify

import scala.annotation.tailrec

import org.apache.spark.sql.catalyst.expressions.AttributeSet
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics
import org.apache.spark.sql.execution.{CollectMetricsExec, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.python.EvalPythonExec
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.MadePlan

/** Modifications that leave the Java code of the operators of a batch as it is: they have code of their own. */
private[modify] object OwnCode extends AdaptiveSparkPlanHelper {
  /** The table of a join is better sent before, and new functions need Python workers. */
  private def isAlone(its: Modification): Boolean =
    (its.kind == Modification.Filter || its.kind == Modification.Columns) && its.functions.isEmpty

  /**
   * Whether the Java code of this batch also serves a batch with this modification. It does not if the operators must
   * bring other columns to the point.
   */
  def isOf(its: Modification, batch: IncrementalExecution): Boolean =
    (its.removes || isAlone(its)) && MadePlan.of(batch).flatMap(point(its.target, _)).exists { case (made, rows) =>
      // Otherwise a modification in force needs a column that nothing else needs.
      made.output.size == rows.output.size && (its.removes || needed(its, batch).subsetOf(rows.outputSet))
    }

  /** What a point gets its rows from: the operators of modifications, and what comes below these. */
  private def point(name: String, made: SparkPlan): Option[(SparkPlan, SparkPlan)] = {
    @tailrec def below(plan: SparkPlan): SparkPlan = plan match {
      case _: PointFilterExec | _: PointColumnsExec | _: PointJoinExec | _: EvalPythonExec => below(plan.children.head)
      case other => other
    }
    collectFirst(made) { case node: CollectMetricsExec if node.name == name => (node.child, below(node.child)) }
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
