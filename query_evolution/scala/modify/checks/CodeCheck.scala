package rhino.spark.modify.checks

import java.util.Base64

import scala.util.control.NonFatal

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.FutureAction
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LogicalRDD, QueryExecution, RDDScanExec, SparkPlan}
import org.apache.spark.sql.execution.python.{ArrowEvalPythonExec, BatchEvalPythonExec}
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode}
import org.apache.spark.sql.types.{LongType, StringType}
import org.apache.spark.unsafe.types.UTF8String

import rhino.spark.modify.points.PointSql
import rhino.spark.modify.records.Modification

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
   * Does `meanwhile` while the executors load the code. `executors`: host and id of each. Throws
   * IllegalArgumentException with Python's error.
   */
  def check(sent: Seq[Sent], executors: Seq[(String, String)], session: SparkSession)(meanwhile: => Unit): Unit =
    LimitedJob.run(session.sparkContext, "Rhino checks the code of a modification") {
      val loading = sent.map { its =>
        val job = session.withActive(loaded(its.udf, executors, session))
        LimitedJob.Check(job, error => s"the executors cannot load ${its.what}: $error")
      }
      LimitedJob.settle(loading, reason)(meanwhile)
    }

  private def loaded(
      udf: PythonUDF, executors: Seq[(String, String)], session: SparkSession): FutureAction[Seq[String]] = {
    val rows = LimitedJob.onEach(executors, session.sparkContext).mapPartitions(_ => Iterator.empty[InternalRow])
    val plan = planOf(udf, rows)
    Internals.withArtifactsOf(session)(plan.execute().mapPartitions(rows => Iterator(errorOf(rows))).collectAsync())
  }

  /**
   * A plan whose tasks give a function to a Python worker: one bigint for each row. Spark's planner would take longer
   * than the job. A worker gets the files of Spark Connect's clients that the calling thread has. These must be the
   * files of the query's thread: a batch has no others.
   */
  private def planOf(udf: PythonUDF, rows: RDD[InternalRow]): SparkPlan = {
    val (input, made) = (AttributeReference("id", LongType)(), AttributeReference("made", LongType)())
    val scan = RDDScanExec(Seq(input), rows, "executors")
    val called = Seq(udf.copy(children = Seq(input)))
    if (PythonCode.isPlain(udf)) BatchEvalPythonExec(called, Seq(made), scan)
    else ArrowEvalPythonExec(called, Seq(made), scan, udf.evalType)
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

/**
 * Whether a new processor of transformWithState declares the state variables of the present one. Spark itself looks at
 * them in the first batch of a run only. A Python worker asks both, see query_evolution/modify/variables.py.
 */
private[modify] object StateVariables {
  private val Processors = Set(211, 213) // with pandas, and with rows: part of PySpark's protocol

  def check(its: Modification, present: PythonUDF, session: SparkSession): Unit =
    if (Processors(present.evalType)) {
      if (its.guard.isEmpty) refuse("the record does not say how state variables are compared")
      val answer =
        try LimitedJob.run(session.sparkContext, "Rhino compares the state variables of a modification") {
          session.withActive(asked(its, present, session))
        } catch {
          case NonFatal(error) => s"the state variables cannot be compared: ${CodeCheck.reason(error)}"
        }
      if (answer.nonEmpty) refuse(answer)
    }

  private def asked(its: Modification, present: PythonUDF, session: SparkSession): String = {
    def text(code: Array[Byte]) = Base64.getEncoder.encodeToString(code)
    val codes = ("old" -> text(PythonCode.of(present).toArray)) ~ ("new" -> text(its.code))
    val row = InternalRow(UTF8String.fromString(compact(render(codes))))
    val rdd: RDD[InternalRow] = session.sparkContext.makeRDD(Seq(row), 1)
    val input = AttributeReference("codes", StringType)()
    val udf = Alias(PythonCode.telling(present, its.guard, input), "answer")()
    val answers = new QueryExecution(session, Project(Seq(udf), LogicalRDD(Seq(input), rdd)(session))).toRdd
    answers.map(_.getUTF8String(0).toString).collect().head
  }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
