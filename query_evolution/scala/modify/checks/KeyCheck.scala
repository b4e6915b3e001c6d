package rhino.spark.modify.checks

import org.apache.spark.sql.catalyst.expressions.{Alias, Expression, ExprId}
import org.apache.spark.sql.catalyst.plans.logical._

/** Refuses what decides under which key state is: state of the former keys would stay as it is. */
private[spark] object KeyCheck {

  /** `changed`: which expressions of the plan would have other values. Throws IllegalArgumentException. */
  def check(target: String, plan: LogicalPlan)(changed: PartialFunction[Expression, Boolean]): Unit = {
    val origins = plan.collect { case node => made(node) }.flatten.groupMap(_._1)(_._2)
    def hit(expression: Expression): Boolean =
      expression.exists(part => changed.applyOrElse(part, (_: Expression) => false))
    def below(expressions: Seq[Expression], seen: Set[ExprId]): Boolean = expressions.exists(hit) || {
      val ids = expressions.flatMap(_.references.map(_.exprId)).toSet -- seen
      ids.nonEmpty && below(ids.toSeq.flatMap(origins.getOrElse(_, Nil)), seen ++ ids)
    }
    if (below(keys(plan), Set.empty)) throw new IllegalArgumentException(
      s"$target decides a key or the event time of a stateful operator, and their state would stay under the former " +
        "keys: start a new query for that")
  }

  private def keys(plan: LogicalPlan): Seq[Expression] = plan.collect {
    case node: Aggregate if node.isStreaming => node.groupingExpressions
    case node: Deduplicate if node.isStreaming => node.keys
    case node: DeduplicateWithinWatermark if node.isStreaming => node.keys
    case node: Join if node.left.isStreaming && node.right.isStreaming => node.condition.toSeq
    case node: FlatMapGroupsInPandasWithState => node.groupingAttributes
    case node: TransformWithStateInPySpark => node.leftAttributes
    case node: FlatMapGroupsWithState if node.isStreaming => node.groupingAttributes
    case node: TransformWithState if node.isStreaming => node.groupingAttributes
    case node: EventTimeWatermark => Seq(node.eventTime)
  }.flatten

  /** Columns that a node makes, each with what its values come from. */
  private def made(node: LogicalPlan): Seq[(ExprId, Expression)] = {
    val aliases = node.expressions.flatMap(_.collect { case alias: Alias => alias.exprId -> alias.child })
    val others = node match {
      case union: Union => union.children.flatMap(child => union.output.zip(child.output)).collect {
          case (column, its) if column.exprId != its.exprId => column.exprId -> its
        }
      case generate: Generate => generate.generatorOutput.map(_.exprId -> (generate.generator: Expression))
      case code => // of users: any column may decide any other one
        val (given, named) = (code.children.flatMap(_.output), aliases.map(_._1).toSet)
        for (column <- (code.outputSet -- given).toSeq if !named(column.exprId); its <- given)
          yield column.exprId -> (its: Expression)
    }
    aliases ++ others
  }
}
