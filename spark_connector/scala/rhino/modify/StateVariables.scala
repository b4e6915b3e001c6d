package rhino.spark.modify

import java.util.Base64

import scala.util.control.NonFatal

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LogicalRDD, QueryExecution}
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.StringType
import org.apache.spark.unsafe.types.UTF8String
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

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
