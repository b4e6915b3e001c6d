package rhino.spark

import org.apache.spark.sql.catalyst.expressions.{Add, Alias, AttributeReference, EqualTo, Expression, GreaterThan, Literal}
import org.apache.spark.sql.catalyst.optimizer.{ColumnPruning, InferFiltersFromConstraints, PushPredicateThroughNonJoin}
import org.apache.spark.sql.catalyst.plans.{Inner, JoinType, LeftAnti, LeftOuter, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.types.LongType

import rhino.spark.modify.points.{PointColumns, PointColumnsExec, PointFilter, PointJoin, PointStrategy, PointTable}
import rhino.spark.modify.records.StaticTable

/** What Spark's optimizer makes of the nodes of points. */
class PointNodesSuite extends Suite {
  private def column(name: String) = AttributeReference(name, LongType)()
  private val Seq(key, value, unread, other, changed) =
    Seq("key", "value", "unread", "other", "changed").map(column): @unchecked
  private val rows = LocalRelation(key, value, unread)
  private val table = PointTable(StaticTable.none, Seq(other, changed))
  private def joined(kind: JoinType) = PointJoin(kind, Seq(key), Seq(other), rows, table)
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

  test("nothing is inferred from a join of a point") {
    expect(inferred(joined(LeftSemi)), Nil)
    val made = InferFiltersFromConstraints(joined(Inner))
    expect(made, joined(Inner)) // Spark's join would have conditions on both sides
  }

  test("conditions of the query below a filter of a point count as without it") {
    expect(inferred(PointFilter(GreaterThan(value, key), Filter(great, rows))), Seq(GreaterThan(other, Literal(10L))))
  }

  test("no condition of the query passes a node of a point") {
    def pushed(below: LogicalPlan): LogicalPlan = PushPredicateThroughNonJoin(Filter(great, below))
    for (node <- Seq[LogicalPlan](PointFilter(GreaterThan(value, key), rows), joined(LeftSemi)))
      expect(pushed(node), Filter(great, node))
  }

  private def pruned(above: Expression*)(node: LogicalPlan): Seq[String] = {
    val made = ColumnPruning(Project(above.map(_.asInstanceOf[AttributeReference]), node))
    made.collectFirst { case point @ (_: PointFilter | _: PointColumns | _: PointJoin) => point }.get
      .children.head.output.map(_.name)
  }

  test("columns that neither the query nor the node reads are pruned below it") {
    expect(pruned(key)(PointFilter(GreaterThan(value, Literal(0L)), rows)), Seq("key", "value"))
    val columns = PointColumns(Seq(value), Seq(Add(value, Literal(1L))), Seq(changed), rows)
    expect(columns.output.map(_.name), Seq("key", "changed", "unread"))
    expect((columns.resolved, columns.missingInput.isEmpty), (true, true))
    expect(pruned(key, changed)(columns), Seq("key", "value"))
  }

  test("columns of a table are not pruned, and what comes out of a join depends on its kind") {
    expect(pruned(key, changed)(joined(LeftOuter)), Seq("key"))
    val all = Seq("key", "value", "unread")
    val made = Seq(LeftSemi, LeftAnti, Inner).map(joined(_).output.map(_.name))
    expect(made, Seq(all, all, all ++ Seq("other", "changed")))
    expect(joined(LeftOuter).output.takeRight(2).map(_.nullable), Seq(true, true))
  }

  test("what drops columns above a node of a point is no operator of Spark") {
    PointStrategy(Project(Seq(key), PointFilter(great, rows))) match {
      case Seq(PointColumnsExec(Seq(one), Seq(same), child)) =>
        expect((one, same, child.output), (key, key, rows.output))
      case its => throw new AssertionError(s"$its")
    }
    expect(PointStrategy(Project(Seq(Alias(Add(key, value), "sum")()), PointFilter(great, rows))), Nil)
    expect(PointStrategy(Project(Seq(key), Filter(great, rows))), Nil)
  }

  test("columns of a join are made by one operator") {
    val join = joined(LeftOuter)
    val taken = join.output.last
    val dropped = Project(Seq(key, value, taken), join)
    val made = column("made")
    val changes = PointColumns(Seq(value), Seq(Add(value, taken)), Seq(made), dropped)
    PointStrategy(Project(Seq(key, made), changes)) match {
      case Seq(PointColumnsExec(values, output, child)) =>
        expect((values, output), (Seq(key, Add(value, taken)), Seq(key, made)))
        expect(child.output, join.output)
      case its => throw new AssertionError(s"$its")
    }
  }

  test("two operators make columns if a row would compute a value twice otherwise") {
    val (first, second) = (column("first"), column("second"))
    val sum = PointColumns(Seq(value), Seq(Add(value, key)), Seq(first), rows)
    PointStrategy(PointColumns(Seq(first), Seq(Add(first, first)), Seq(second), sum)) match {
      case Seq(PointColumnsExec(values, _, child)) =>
        expect((values, child.output), (Seq(key, Add(first, first), unread), sum.output))
      case its => throw new AssertionError(s"$its")
    }
  }

  test("rows stay where they are if columns change that do not decide it") {
    val spread = ShuffleExchangeExec(HashPartitioning(Seq(key), 2), Plans.scan)
    expect(PointColumnsExec(Seq(key, value), Seq(key, changed), spread).outputPartitioning, spread.outputPartitioning)
    expect(PointColumnsExec(Seq(key), Seq(changed), spread).outputPartitioning, UnknownPartitioning(0))
  }
}
