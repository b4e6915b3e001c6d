package rhino.spark

import rhino.spark.modify.PlanCheck

import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, Project}
import org.apache.spark.sql.types.LongType

/** Why a function cannot be replaced. */
class PlanCheckSuite extends Suite {
  private val value = AttributeReference("value", LongType)()
  private val twice = ScalaUDF((x: Long) => 2 * x, LongType, Seq(value), udfName = Some("twice"))
  private val plan = Project(Seq(Alias(twice, "y")()), LocalRelation(value))

  test("a Scala function is named as such, with what can be done instead") {
    val reason = PlanCheck.missing("twice", plan)
    expect(reason.startsWith("twice is a Scala or Java function, and its code is in the jars"), true)
    expect(reason.contains("give its column another value at a point that the query observes"), true)
  }

  test("a function that is not there is missing") {
    expect(PlanCheck.missing("nobody", plan), "the query has no Python function nobody; it has none")
  }
}
