package rhino.spark.modify.checks

import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.DataType

import rhino.spark.modify.points.{Overlay, PlanFunctions}
import rhino.spark.modify.records.{Canary, Modification}

/** Checks of a modification against the plan of the running query. They throw IllegalArgumentException or Spark's. */
private[spark] object PlanCheck {

  /** `batch`: the newest one. `inForce`: what the next batch would have without this modification. */
  def check(its: Modification, batch: IncrementalExecution, inForce: Seq[Modification]): Unit = {
    val (plan, session) = (batch.logical, batch.sparkSession) // without modifications
    if (its.removes) {
      if (!inForce.exists(_.slot == its.slot)) refuse(s"no modification of ${its.kind} ${its.target} is in force")
    } else if (its.jar.nonEmpty) JarCheck.checkPlan(its, plan)
    else if (its.kind == Modification.Function) checkFunction(its, plan)
    else PointCheck.check(its, point(its.target, plan), plan, session)
    its.canary.flatMap(_.tooLong(session.sessionState.conf.minBatchesToRetain)).foreach(refuse)
    its.canary.filter(_.countsRows).foreach { canary =>
      val names = point(canary.point, plan).metrics.map(_.name)
      if (!names.contains(Canary.Rows)) refuse(
        s"the point ${canary.point} does not count its rows: give .observe a count with the alias ${Canary.Rows}")
    }
    val others = inForce.filterNot(_.slot == its.slot)
    val next = if (its.removes) others else others :+ its
    val before = outputOf(analysed(plan, session))
    val after = outputOf(analysed(Overlay.of(batch, next), session))
    if (before != after) refuse(s"the rows of the query would be ${after.mkString(", ")}, not ${before.mkString(", ")}")
  }

  /** The functions of a plan with this name. */
  def functions(name: String, plan: LogicalPlan): Seq[PythonUDF] = PlanFunctions.python(plan).filter(_.name == name)

  /** Why a plan has no Python function of this name. */
  def missing(name: String, plan: LogicalPlan): String =
    if (PlanFunctions.jvm(plan).exists(_.udfName.contains(name)))
      s"$name is a Scala or Java function: give its new version by --jar and --class"
    else {
      val names = PlanFunctions.python(plan).map(_.name).distinct
      s"the query has no Python function $name; it has " + list(names)
    }

  private def checkFunction(its: Modification, plan: LogicalPlan): Unit = {
    val found = functions(its.target, plan)
    if (found.isEmpty) refuse(missing(its.target, plan))
    if (found.map(PythonCode.of).distinct.size > 1) refuse(
      s"the query has several functions with the name ${its.target}: give each a name of its own")
    val present = found.head
    if (!its.fits(present.evalType)) refuse(
      s"${its.target} is of PySpark's kind ${present.evalType}, and the new function is of kind ${its.evalType}: " +
        "make it by the same decorator (udf, pandas_udf, arrow_udf), or with query_evolution.state_function")
    val returns = DataType.fromJson(its.returns)
    if (!DataType.equalsIgnoreNullability(returns, present.dataType)) refuse(
      s"${its.target} returns ${present.dataType.sql}, and the new function returns ${returns.sql}")
    for ((least, most) <- its.takes; udf <- found if !udf.children.exists(PlanFunctions.isNamed)) {
      val passed = udf.children.size
      if (passed < least || passed > most) refuse(
        s"the query calls ${its.target} with $passed arguments, and the new function takes " +
          PointCheck.bounds(least, most))
    }
    if (!present.udfDeterministic) refuse(s"${its.target} is declared as non-deterministic")
    KeyCheck.check(its.target, plan) { case udf: PythonUDF => udf.name == its.target }
  }

  private def point(name: String, plan: LogicalPlan): CollectMetrics = {
    val points = plan.collect { case point: CollectMetrics if point.isStreaming => point }
    val found = points.filter(_.name == name)
    if (found.isEmpty) refuse(
      s"""the query has no point $name: name it by .observe("$name", ...) in the query. """ +
        "It has " + list(points.map(_.name).distinct))
    if (found.size > 1) refuse(s"the query has the point $name ${found.size} times")
    found.head
  }

  private def analysed(plan: LogicalPlan, session: SparkSession): LogicalPlan =
    session.sessionState.analyzer.executeAndCheck(plan.clone(), new QueryPlanningTracker)

  /** The node that writes has no columns of its own. */
  private def outputOf(plan: LogicalPlan): Seq[String] = plan match {
    case write if write.output.isEmpty && write.children.size == 1 => outputOf(write.children.head)
    case other => other.output.map(a => s"${a.name} ${a.dataType.sql}")
  }

  private def list(names: Seq[String]): String = if (names.isEmpty) "none" else names.mkString(", ")
  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
