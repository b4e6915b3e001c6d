package rhino.spark.modify

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.control.NonFatal

import org.apache.spark.FutureAction
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode}

/**
 * Whether the Python workers of the executors can load the code of a modification, with all that it imports. A job with
 * one task for each executor sends the code to a worker, and no rows. So nothing of it is called.
 */
private[modify] object CodeCheck {
  private val PythonError = raw"\s*([\w.]+(?:Error|Exception|Exit|Interrupt)\b.*)".r

  /** What the executors load, and how a refusal names it. */
  case class Sent(what: String, udf: PythonUDF)

  /** `present`: the function that the code replaces. */
  def replacing(code: Array[Byte], present: PythonUDF): Sent =
    Sent("the new function", PythonCode.loading(present, code))

  /** The functions that come with SQL at a point. `plan`: of the application. */
  def inserted(its: Modification, plan: LogicalPlan, session: SparkSession): Seq[Sent] = {
    val sql = PointSql.of(its, plan, session)
    its.functions.map(one => Sent(s"the function ${one.name}", PythonCode.loading(sql.called(one, Nil))))
  }

  /**
   * Does `meanwhile` while the executors load the code: they may have to wait for a free slot. An error of `meanwhile`
   * comes first, and ends the jobs. `executors`: host and id of each. Throws IllegalArgumentException with Python's
   * error.
   */
  def check(sent: Seq[Sent], executors: Seq[(String, String)], session: SparkSession)(meanwhile: => Unit): Unit =
    LimitedJob.run(session.sparkContext, "Rhino checks the code of a modification") {
      val jobs = sent.map(its => its.what -> session.withActive(job(its.udf, executors, session)))
      try {
        meanwhile
        jobs.foreach { case (what, loading) => loaded(what, loading) }
      } catch { case error: Throwable => jobs.foreach(_._2.cancel()); throw error }
    }

  private def loaded(what: String, loading: FutureAction[Seq[String]]): Unit = {
    def refuse(error: String, cause: Throwable) =
      throw new IllegalArgumentException(s"the executors cannot load $what: $error", cause)
    val errors =
      try Await.result(loading, Duration.Inf)
      catch { case NonFatal(error) => refuse(reason(error), error) } // errors of Python workers have no common class
    errors.find(_.nonEmpty).foreach(refuse(_, null))
  }

  /** Each task answers with the error of the code, or "". A task that failed would speak against its executor. */
  private def job(
      udf: PythonUDF, executors: Seq[(String, String)], session: SparkSession): FutureAction[Seq[String]] = {
    val context = session.sparkContext
    val places = executors.map { case (host, id) => id -> Seq(Internals.executorPlace(host, id)) }
    val tasks = if (places.isEmpty) context.makeRDD(Seq("driver"), 1) else context.makeRDD(places)
    val rows = tasks.mapPartitions(_ => Iterator.empty[InternalRow])
    val plan = WorkerCall.of(udf, rows)
    Internals.withArtifactsOf(session)(plan.execute().mapPartitions(rows => Iterator(errorOf(rows))).collectAsync())
  }

  private def errorOf(rows: Iterator[InternalRow]): String =
    try { rows.foreach(_ => ()); "" }
    catch { case error: Throwable if PythonCode.isErrorOfCode(error) => reason(error) }

  /** The error of Python, if there is one, without its traceback. */
  def reason(error: Throwable): String = {
    val lines = Option(error.getMessage).getOrElse(error.toString).linesIterator.toSeq
    lines.collect { case PythonError(line) => line }.lastOption.orElse(lines.headOption).getOrElse(error.toString)
  }
}
