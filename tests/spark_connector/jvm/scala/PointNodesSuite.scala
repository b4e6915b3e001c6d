package rhino.spark

import org.apache.spark.sql.catalyst.expressions.{Add, AttributeReference, EqualTo, Expression, GreaterThan, Literal}
import org.apache.spark.sql.catalyst.optimizer.{ColumnPruning, InferFiltersFromConstraints, PushPredicateThroughNonJoin}
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.LongType

import rhino.spark.modify.{PointColumns, PointFence, PointFilter}

/** What Spark's optimizer makes of the nodes of points. */
class PointNodesSuite extends Suite {
  private def column(name: String) = AttributeReference(name, LongType)()
  private val Seq(key, value, unread, other, changed) =
    Seq("key", "value", "unread", "other", "changed").map(column): @unchecked
  private val rows = LocalRelation(key, value, unread)
  private val great = GreaterThan(key, Literal(10L))

  /** Conditions of the other input of a join on the key, other than that the key is there. */
  private def inferred(input: LogicalPlan): Seq[Expression] = {
    val join = Join(input, LocalRelation(other), Inner, Some(EqualTo(key, other)), JoinHint.NONE)
    val made = InferFiltersFromConstraints(join).asInstanceOf[Join].right
    made.collect { case filter: Filter => filter.condition }.flatMap(_.collect { case its: GreaterThan => its })
  }

  test("a filter on the key of a join filters the other input, and one of a point does not") {
    expect(inferred(Filter(great, rows)), Seq(GreaterThan(other, Literal(10L))))
    expect(inferred(PointFilter(great, rows)), Nil)
  }

  test("nothing that is true of joined rows is inferred above the fence") {
    expect(inferred(PointFence(Filter(great, rows))), Nil)
  }

  test("conditions of the query below a filter of a point count as without it") {
    expect(inferred(PointFilter(GreaterThan(value, key), Filter(great, rows))), Seq(GreaterThan(other, Literal(10L))))
  }

  test("no condition of the query passes a node of a point") {
    def pushed(below: LogicalPlan): LogicalPlan = PushPredicateThroughNonJoin(Filter(great, below))
    for (node <- Seq[LogicalPlan](PointFilter(GreaterThan(value, key), rows), PointFence(rows)))
      expect(pushed(node), Filter(great, node))
  }

  private def pruned(above: Expression*)(node: LogicalPlan): Seq[String] = {
    val made = ColumnPruning(Project(above.map(_.asInstanceOf[AttributeReference]), node))
    made.collectFirst { case point: PointFilter => point; case point: PointColumns => point }.get
      .children.head.output.map(_.name)
  }

  test("columns that neither the query nor the node reads are pruned below it") {
    expect(pruned(key)(PointFilter(GreaterThan(value, Literal(0L)), rows)), Seq("key", "value"))
    val columns = PointColumns(Seq(value), Seq(Add(value, Literal(1L))), Seq(changed), rows)
    expect(columns.output.map(_.name), Seq("key", "changed", "unread"))
    expect((columns.resolved, columns.missingInput.isEmpty), (true, true))
    expect(pruned(key, changed)(columns), Seq("key", "value"))
  }
}
