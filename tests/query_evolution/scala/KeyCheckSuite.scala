package rhino.spark

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{LongType, StringType}

import rhino.spark.modify.checks.KeyCheck

/** What decides a key of a stateful operator, through nodes that make columns. */
class KeyCheckSuite extends Suite {
  private val (value, other) = (AttributeReference("value", LongType)(), AttributeReference("other", LongType)())
  private val score = ScalaUDF((x: Long) => 2 * x, LongType, Seq(value), udfName = Some("score"))
  private val rows = LocalRelation(Seq(value, other), isStreaming = true)
  private val (y, k) = (Alias(score, "y")(), Alias(other, "k")())
  private val scored = Project(Seq(y, k), rows)

  private def refused(plan: LogicalPlan): Boolean =
    try { KeyCheck.check("score", plan) { case udf: ScalaUDF => udf.udfName.contains("score") }; false }
    catch { case _: IllegalArgumentException => true }

  private def counted(by: Attribute, plan: LogicalPlan): LogicalPlan = Aggregate(Seq(by), Seq(by), plan)

  test("a column that only goes into the state may change, and one that is a key may not") {
    expect(refused(counted(k.toAttribute, scored)), false)
    expect(refused(counted(y.toAttribute, scored)), true)
    expect(refused(counted(other, rows)), false)
    expect(refused(Deduplicate(Seq(y.toAttribute), scored)), true)
  }

  test("a key may come from any branch of a union") {
    val plain = Project(Seq(Alias(value, "y")(), Alias(other, "k")()), rows)
    val union = Union(plain, scored)
    expect(refused(counted(union.output.head, union)), true)
    expect(refused(counted(union.output(1), union)), false)
  }

  test("what code of users makes may depend on each of its columns") {
    val made = AttributeReference("made", StringType)()
    val script = ScriptTransformation("cat", Seq(made), scored, null)
    expect(refused(counted(made, script)), true)
  }
}
