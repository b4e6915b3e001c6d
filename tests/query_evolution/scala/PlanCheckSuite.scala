package rhino.spark

import java.util.concurrent.CountDownLatch

import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan, Project}
import org.apache.spark.sql.types.{LongType, StringType}

import rhino.spark.modify.checks.{JarCheck, LimitedJob, PlanCheck}
import rhino.spark.modify.jars.JarCode
import rhino.spark.modify.points.{Overlay, PlanFunctions}
import rhino.spark.modify.records.Modification

/** Why a function cannot be replaced. */
class PlanCheckSuite extends Suite {
  private val value = AttributeReference("value", LongType)()
  private val twice = ScalaUDF((x: Long) => 2 * x, LongType, Seq(value), udfName = Some("twice"))
  private val plan = Project(Seq(Alias(twice, "y")()), LocalRelation(value))

  test("a Scala function is named as such, with how it is replaced") {
    expect(
      PlanCheck.missing("twice", plan),
      "twice is a Scala or Java function: give its new version by --jar and --class")
  }

  test("a function that is not there is missing") {
    expect(PlanCheck.missing("nobody", plan), "the query has no Python function nobody; it has none")
  }

  private val jar = JarCode("com.acme.Score", "ab" * 32)
  private def change(target: String): Modification =
    Modification(1, Modification.Function, target, removes = false, dryRun = false, jar = Some(jar))

  test("a batch calls functions that can be replaced through objects of ours, and equal calls stay equal") {
    val unnamed = twice.copy(udfName = None)
    val calls = Seq(twice, twice.copy(), unnamed).map(Alias(_, "y")())
    val made = new Overlay(Project(calls, LocalRelation(value)), Nil, session = null, batchMs = 0).made
    val udfs = made.expressions.flatMap(_.collect { case udf: ScalaUDF => udf })
    expect(udfs.size, calls.size)
    expect(udfs(0), udfs(1))
    expect(udfs(0) == twice, false)
    expect(udfs(0).copy(function = twice.function), twice)
    expect(udfs(2), unnamed)
  }

  test("a class of a jar is for the functions of its name, with what they give and take") {
    val its = JarCheck.fitted(change("twice"), plan)
    expect(PlanFunctions.fits(its, twice), true)
    expect(PlanFunctions.fits(its, twice.copy(udfName = Some("thrice"))), false)
    expect(PlanFunctions.fits(its, twice.copy(dataType = StringType)), false)
    expect(PlanFunctions.fits(change("twice"), twice), false)
    def misplaced(plan: LogicalPlan) = new Overlay(plan, Seq(its), session = null, batchMs = 0).misplaced
    expect(misplaced(Project(Nil, LocalRelation(value))), Seq(its -> "the application has no such place any more"))
  }

  test("a check that is cancelled says nothing against what it checks") {
    val cancelled = new CountDownLatch(1)
    fails[IllegalArgumentException]("did not end within 0.02 s", "the same request may pass later")(
      LimitedJob.within(20)(cancelled.countDown()) { cancelled.await(); throw new IllegalStateException("cancelled") })
    fails[IllegalStateException]("wrong")(LimitedJob.within(60_000)(())(throw new IllegalStateException("wrong")))
    expect(LimitedJob.within(60_000)(())(7), 7)
  }

  test("a class is refused where the query has no such function, several, or one of Python") {
    fails[IllegalArgumentException]("the query has no Scala or Java function nobody; it has twice")(
      JarCheck.fitted(change("nobody"), plan))
    val other = twice.copy(function = (x: Long) => 3 * x)
    fails[IllegalArgumentException]("several functions with the name twice")(
      JarCheck.fitted(change("twice"), Project(Seq(Alias(other, "z")()), plan)))
    fails[IllegalArgumentException]("twice is declared as non-deterministic")(
      JarCheck.checkPlan(change("twice"), Project(Seq(Alias(twice.copy(udfDeterministic = false), "y")()),
        LocalRelation(value))))
  }
}
