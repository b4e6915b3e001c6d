package rhino.spark.modify

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.control.NonFatal

import org.apache.spark.FutureAction
import org.apache.spark.sql.catalyst.expressions.ScalaUDF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/** Checks of a class that is to replace a function of Scala or Java. They throw IllegalArgumentException or Spark's. */
private[spark] object JarCheck {

  /** The functions of Scala and Java of a plan that have a name. */
  def functionsOf(plan: LogicalPlan): Seq[ScalaUDF] = plan.collect { case node =>
    node.expressions.flatMap(_.collect { case udf: ScalaUDF if udf.udfName.nonEmpty => udf })
  }.flatten

  /** Whether the class was checked for a function like this one. */
  def fits(its: Modification, udf: ScalaUDF): Boolean =
    udf.udfName.contains(its.target) && its.jar.exists(_.fits(JarShape.of(udf).text))

  /** The modification, for the functions of this plan. Anything else is the same. */
  def fitted(its: Modification, plan: LogicalPlan): Modification =
    if (its.removes) its else its.fitting(present(its, plan).map(JarShape.of(_).text).toSet)

  /** All calls of the function that it replaces. */
  private def present(its: Modification, plan: LogicalPlan): Seq[ScalaUDF] = if (its.jar.isEmpty) Nil else {
    val found = functionsOf(plan).filter(_.udfName.contains(its.target))
    if (found.isEmpty) {
      if (PointSql.functionsOf(plan).exists(_.name == its.target)) refuse(
        s"${its.target} is a Python function: give its new version by --code")
      val names = functionsOf(plan).flatMap(_.udfName).distinct
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
   * Does `meanwhile` while each executor loads the class and makes an object of it, which nothing calls. An error of
   * `meanwhile` comes first. `executors`: host and id of each.
   */
  def check(its: Modification, plan: LogicalPlan, executors: Seq[(String, String)], session: SparkSession)(
      meanwhile: => Unit): Unit = {
    val shapes = present(its, plan).map(JarShape.of).distinct
    val arity = shapes.head.arguments.size
    LimitedJob.run(session.sparkContext, "Rhino checks the class of a modification") {
      val loading = job(its.jar.get, arity, shapes, executors, session)
      try {
        meanwhile
        val errors =
          try Await.result(loading, Duration.Inf)
          catch { case NonFatal(error) => throw new IllegalArgumentException(
              s"the executors cannot load the new function: ${error.getMessage}", error) }
        errors.find(_.nonEmpty).foreach(refuse)
      } catch { case error: Throwable => loading.cancel(); throw error }
    }
  }

  /** Each task answers with what is wrong, or "". A failed one would be tried again, and speak against its executor. */
  private def job(
      code: JarCode, arity: Int, shapes: Seq[JarShape], executors: Seq[(String, String)],
      session: SparkSession): FutureAction[Seq[String]] = {
    val context = session.sparkContext
    val its = code.loaded(arity, context)
    val places = executors.map { case (host, id) => id -> Seq(Internals.executorPlace(host, id)) }
    val tasks = if (places.isEmpty) context.makeRDD(Seq("driver"), 1) else context.makeRDD(places)
    Internals.withArtifactsOf(session)(tasks.map(_ => wrong(its, shapes)).collectAsync())
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
