package rhino.spark.modify

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LogicalRDD, QueryExecution}
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode}
import org.apache.spark.sql.types.LongType

/**
 * Whether the Python workers of the executors can load the code of a modification, with all that it imports. A job with
 * one task for each executor sends the code to a worker, and no rows. So nothing of it is called.
 */
private[modify] object CodeCheck {
  private val PythonError = raw"\s*([\w.]+(?:Error|Exception|Exit|Interrupt)\b.*)".r

  /** `executors`: host and id of each. Throws IllegalArgumentException with Python's error. */
  def check(code: Array[Byte], like: PythonUDF, executors: Seq[(String, String)], session: SparkSession): Unit = {
    val context = session.sparkContext
    val places = executors.map { case (host, id) => id -> Seq(Internals.executorPlace(host, id)) }
    val none = if (places.isEmpty) context.makeRDD(Seq("driver"), 1) else context.makeRDD(places)
    val input = AttributeReference("id", LongType)()
    val loaded = Alias(PythonCode.loading(like, code, input), "loaded")()
    val rows = LogicalRDD(Seq(input), none.mapPartitions(_ => Iterator.empty[InternalRow]))(session)
    try LimitedJob.run(context, "Rhino checks the code of a modification") {
      session.withActive(new QueryExecution(session, Project(Seq(loaded), rows)).toRdd.count())
    } catch {
      case NonFatal(error) => // errors of Python workers have no common class
        throw new IllegalArgumentException(s"the executors cannot load the new function: ${reason(error)}", error)
    }
  }

  /** The error of Python, if there is one, without its traceback. */
  def reason(error: Throwable): String = {
    val lines = Option(error.getMessage).getOrElse(error.toString).linesIterator.toSeq
    lines.collect { case PythonError(line) => line }.lastOption.orElse(lines.headOption).getOrElse(error.toString)
  }
}
