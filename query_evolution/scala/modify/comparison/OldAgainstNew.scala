package rhino.spark.modify.comparison

import java.util.Base64

import scala.util.control.NonFatal

import org.json4s.JObject
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, Expression, PythonUDF, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LogicalRDD, QueryExecution}
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.StringType
import org.apache.spark.unsafe.types.UTF8String

import rhino.spark.modify.checks.{CodeCheck, LimitedJob}
import rhino.spark.modify.points.PlanFunctions
import rhino.spark.modify.records.Modification

/**
 * Old against new: a Python worker of an executor calls both versions of a function with rows of a batch. The code that
 * compares comes with the record, see query_evolution/modify/comparer.py. Values of rows are in its answer only, and
 * not in a log: it catches the errors of both functions. For functions of Scala and Java, see JarComparison.
 */
private[modify] object OldAgainstNew {

  /** What `rhino modify` reads. A comparison that cannot be is no reason to refuse a modification. */
  def answer(its: Modification, batch: IncrementalExecution, inForce: Seq[Modification]): JObject =
    ("batch" -> batch.currentBatchId) ~ (
      try found(its, batch, inForce)
      catch {
        case error: InterruptedException => throw error
        case NonFatal(error) => skipped(CodeCheck.reason(error))
      })

  private def found(its: Modification, batch: IncrementalExecution, inForce: Seq[Modification]): JObject = {
    val session = batch.sparkSession
    val what = its.sample.get
    LimitedJob.run(session.sparkContext, "Rhino compares a modified function with the present one") {
      session.withActive(
        if (its.jar.nonEmpty) answered(
          Sample.of(its.target, what.rows, batch, inForce) {
            case udf: ScalaUDF if PlanFunctions.fits(its, udf) => udf
          })(
          JarComparison.of(its, _, session))
        else answered(
          Sample.of(its.target, what.rows, batch, inForce) { case udf: PythonUDF if udf.name == its.target => udf })(
          compared(its, what.code, _, session)))
    }
  }

  private def answered[F <: Expression](sample: Sample[F])(compared: Sample[F] => Option[String]): JObject =
    if (sample.rows.isEmpty) skipped("the batch has no rows at this function")
    else compared(sample).fold(skipped("the executors gave no answer"))("found" -> _)

  private def skipped(reason: String): JObject = "skipped" -> reason

  /** The first row carries both versions. One partition has all rows, in their order. */
  private def compared(
      its: Modification, code: Array[Byte], sample: Sample[PythonUDF], session: SparkSession): Option[String] = {
    val encoder = Base64.getEncoder
    val header = compact(render(
      ("old" -> encoder.encodeToString(PythonCode.of(sample.function).toArray)) ~
        ("new" -> encoder.encodeToString(its.code)) ~ ("rows" -> sample.rows.size)))
    val input = ("header" -> StringType) +: sample.types.map("argument" -> _)
    val columns = input.map { case (name, kind) => AttributeReference(name, kind)() }
    val rows = sample.rows.zipWithIndex.map { case (row, place) =>
      InternalRow.fromSeq((if (place == 0) UTF8String.fromString(header) else null) +: row.toSeq(sample.types))
    }
    val rdd: RDD[InternalRow] = session.sparkContext.makeRDD(rows, 1)
    val udf = PythonCode.comparing(sample.function, code, columns)
    val answers = new QueryExecution(session, Project(Seq(Alias(udf, "answer")()), LogicalRDD(columns, rdd)(session)))
    answers.toRdd.filter(row => !row.isNullAt(0)).map(_.getUTF8String(0).toString).collect().lastOption
  }
}
