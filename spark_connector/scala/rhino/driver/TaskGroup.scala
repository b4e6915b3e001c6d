package rhino.spark.driver

import scala.collection.mutable

import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning
import org.apache.spark.sql.execution.{SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator

import rhino.spark.wire.Schema
import rhino.spark.wire.Schema.Message

/**
 * All stateful operators that Spark runs in one task: those of one stage, except that branches of a union are separate.
 */
private[spark] case class TaskGroup(operators: Seq[Long], partitions: Int) {
  def name: Int = operators.min.toInt
  def message: Message =
    Schema.message("TaskGroup", "task_group" -> name, "operators" -> operators, "partitions" -> partitions)
}

private[spark] object TaskGroup {

  /**
   * Splits the plan at its exchanges: operators of one stage share the task of each partition. Branches of a union
   * share a stage but have their own tasks, unless Spark has found that all branches are partitioned alike.
   */
  def of(plan: SparkPlan): Seq[TaskGroup] = {
    val groups = mutable.Map.empty[Int, mutable.LinkedHashMap[Long, Int]]
    var stages = 0
    def visit(node: SparkPlan, stage: Int): Unit = {
      node match {
        case operator: StatefulOperator => operator.stateInfo.foreach { info =>
            groups.getOrElseUpdate(stage, mutable.LinkedHashMap.empty).put(info.operatorId, info.numPartitions)
          }
        case _ =>
      }
      node.children.foreach { child =>
        val below = if (separates(node)) { stages += 1; stages } else stage
        visit(child, below)
      }
    }
    visit(plan, 0)
    groups.values.map(g => TaskGroup(g.keys.toSeq.sorted, g.values.max)).toSeq.sortBy(_.name)
  }

  private def separates(node: SparkPlan): Boolean = node match {
    case _: Exchange => true
    case union: UnionExec => union.outputPartitioning.isInstanceOf[UnknownPartitioning]
    case _ => false
  }
}
