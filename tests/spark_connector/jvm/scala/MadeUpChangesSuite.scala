package rhino.spark

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, Literal}
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LocalRelation, LogicalPlan}
import org.apache.spark.sql.types.{DataType, LongType, MapType, StringType}

import rhino.spark.modify.{MadeUpChanges, Modification}

/** Changes that a young run prepares, and that nobody has asked for. */
class MadeUpChangesSuite extends Suite {
  private def column(name: String, of: DataType): Attribute = AttributeReference(name, of)()

  private def point(streams: Boolean, columns: Attribute*): LogicalPlan = CollectMetrics(
    "read", Seq(Alias(Literal(1L), "rows")()), LocalRelation(columns, isStreaming = streams), dataframeId = 0)

  private val map = column("tags", MapType(StringType, LongType))
  private val twice = Seq(column("a", LongType), column("A", LongType))

  test("a point gets a filter with a function and a join, by its first column that both can use") {
    val columns = map +: twice :+ column("the `key`", StringType)
    val Seq(filter, join) = MadeUpChanges.of(point(true, columns: _*)): @unchecked
    for (its <- Seq(filter, join)) expect((its.target, its.dryRun, its.removes), ("read", true, false))
    expect((filter.kind, join.kind), (Modification.Filter, Modification.Join))
    expect(filter.filter, s"${filter.functions.map(_.name).mkString}(`the ``key```)")
    expect(join.join.get.on, Map("the `key`" -> "key"))
    expect(join.join.get.table.rows.schema.map(_.dataType), Seq(StringType, StringType))
    expect(join.join.get.table.rows.rows.map(_.isNullAt(0)), Seq(true))
    expect(join.columns, Map("the `key`" -> "coalesce(table.value, `the ``key```)"))
  }

  test("the function has code, and a blank of other code, only for workers that run") {
    val plan = point(true, column("k", LongType))
    def function(python: Option[String]) = MadeUpChanges.of(plan, python).head.functions.head
    val (none, made) = (function(None), function(Some("3.12")))
    expect((none.python, none.code.length, none.blank.length), ("", 0, 0))
    expect((made.python, made.code.isEmpty, made.blank.isEmpty), ("3.12", false, false))
    expect(made.blanked.code.sameElements(made.code), false)
  }

  test("without a streaming point that has such a column there is none") {
    expect(MadeUpChanges.of(LocalRelation(column("k", LongType))), Nil)
    expect(MadeUpChanges.of(point(false, column("k", LongType))), Nil)
    expect(MadeUpChanges.of(point(true, map +: twice: _*)), Nil)
  }
}
