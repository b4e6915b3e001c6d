package rhino.spark.modify.checks

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.ScalaUDF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.modify.jars.{JarClass, JarFunction, JarShape}
import rhino.spark.modify.points.PlanFunctions
import rhino.spark.modify.records.Modification

/** Checks of a class that is to replace a function of Scala or Java. They throw IllegalArgumentException or Spark's. */
private[spark] object JarCheck {

  /** The modification, for the functions of this plan. Anything else is the same. */
  def fitted(its: Modification, plan: LogicalPlan): Modification =
    if (its.removes) its else its.fitting(present(its, plan).map(JarShape.of(_).text).toSet)

  /** All calls of the function that it replaces. */
  private def present(its: Modification, plan: LogicalPlan): Seq[ScalaUDF] = if (its.jar.isEmpty) Nil else {
    val found = PlanFunctions.jvm(plan).filter(_.udfName.contains(its.target))
    if (found.isEmpty) {
      if (PlanFunctions.python(plan).exists(_.name == its.target)) refuse(
        s"${its.target} is a Python function: give its new version by --code")
      val names = PlanFunctions.jvm(plan).flatMap(_.udfName).distinct
      refuse(s"the query has no Scala or Java function ${its.target}; it has " +
        (if (names.isEmpty) "none with a name" else names.mkString(", ")))
    }
    if (found.exists(_.function ne found.head.function)) refuse(
      s"the query has several functions with the name ${its.target}: give each a name of its own")
    found
  }

  /** What the plan says about it. */
  def checkPlan(its: Modification, plan: LogicalPlan): Unit = {
    if (present(its, plan).exists(!_.udfDeterministic)) refuse(s"${its.target} is declared as non-deterministic")
    KeyCheck.check(its.target, plan) { case udf: ScalaUDF => udf.udfName.contains(its.target) }
  }

  /**
   * Does `meanwhile` while each executor loads the class and makes an object of it, which nothing calls. `executors`:
   * host and id of each.
   */
  def check(its: Modification, plan: LogicalPlan, executors: Seq[(String, String)], session: SparkSession)(
      meanwhile: => Unit): Unit = {
    val shapes = present(its, plan).map(JarShape.of).distinct
    val context = session.sparkContext
    LimitedJob.run(context, "Rhino checks the class of a modification") {
      val function = its.jar.get.loaded(shapes.head.arguments.size, context)
      val tasks = LimitedJob.onEach(executors, context).map(_ => wrong(function, shapes))
      val job = Internals.withArtifactsOf(session)(tasks.collectAsync())
      LimitedJob.settle(
        Seq(LimitedJob.Check(job, identity)),
        error => s"the executors cannot load the new function: ${error.getMessage}")(meanwhile)
    }
  }

  /** What is wrong with the class in this process, or "". */
  def wrong(its: JarFunction, shapes: Seq[JarShape]): String =
    try JarClass.explained(its.className) {
      shapes.foreach(_.check(its.loaded()))
      its.newInstance()
      ""
    } catch {
      case error: IllegalArgumentException => error.getMessage
      case NonFatal(error) => s"${its.className} cannot be loaded: $error"
    }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
