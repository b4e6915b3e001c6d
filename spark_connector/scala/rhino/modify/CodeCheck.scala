package rhino.spark.modify

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.control.NonFatal

import org.apache.spark.FutureAction
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, PythonUDF}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.RDDScanExec
import org.apache.spark.sql.execution.python.BatchEvalPythonExec
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode}
import org.apache.spark.sql.types.LongType

/**
 * Whether the Python workers of the executors can load the code of a modification, with all that it imports. A job with
 * one task for each executor sends the code to a worker, and no rows. So nothing of it is called.
 */
private[modify] object CodeCheck {
  private val PythonError = raw"\s*([\w.]+(?:Error|Exception|Exit|Interrupt)\b.*)".r

  /**
   * Does `meanwhile` while the executors load the code: they may have to wait for a free slot. An error of `meanwhile`
   * comes first, and ends the job. `executors`: host and id of each. Throws IllegalArgumentException with Python's
   * error.
   */
  def check(code: Array[Byte], like: PythonUDF, executors: Seq[(String, String)], session: SparkSession)(
      meanwhile: => Unit): Unit =
    LimitedJob.run(session.sparkContext, "Rhino checks the code of a modification") {
      val loading = session.withActive(job(code, like, executors, session))
      try meanwhile
      catch { case error: Throwable => loading.cancel(); throw error }
      try Await.result(loading, Duration.Inf)
      catch {
        case NonFatal(error) => // errors of Python workers have no common class
          throw new IllegalArgumentException(s"the executors cannot load the new function: ${reason(error)}", error)
      }
    }

  /** Its plan is made by hand: Spark's planner would take longer than the job. */
  private def job(
      code: Array[Byte], like: PythonUDF, executors: Seq[(String, String)], session: SparkSession)
      : FutureAction[Unit] = {
    val context = session.sparkContext
    val places = executors.map { case (host, id) => id -> Seq(Internals.executorPlace(host, id)) }
    val none = if (places.isEmpty) context.makeRDD(Seq("driver"), 1) else context.makeRDD(places)
    val (input, loaded) = (AttributeReference("id", LongType)(), AttributeReference("loaded", LongType)())
    val rows = RDDScanExec(Seq(input), none.mapPartitions(_ => Iterator.empty[InternalRow]), "executors")
    val udf = PythonCode.loading(like, code, input)
    val plan = BatchEvalPythonExec(Seq(udf), Seq(loaded), rows)
    Internals.withArtifactsOf(session)(plan.execute().foreachAsync(_ => ()))
  }

  /** The error of Python, if there is one, without its traceback. */
  def reason(error: Throwable): String = {
    val lines = Option(error.getMessage).getOrElse(error.toString).linesIterator.toSeq
    lines.collect { case PythonError(line) => line }.lastOption.orElse(lines.headOption).getOrElse(error.toString)
  }
}
