package org.apache.spark.sql.execution.streaming.state
package seam

import org.apache.spark.api.python.{PythonEvalType, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression, PythonUDF}
import org.apache.spark.sql.types.{LongType, StringType}

/** The code of Python functions in plans. `PythonFunction` and `PythonEvalType` are private[spark]. */
object PythonCode {
  def of(udf: PythonUDF): Seq[Byte] = udf.func.command.toArray.toSeq

  /** The same function with other code. */
  def replaced(udf: PythonUDF, code: Array[Byte]): PythonUDF = {
    val former = udf.func
    udf.copy(func = new SimplePythonFunction(
      code, former.envVars, former.pythonIncludes, former.pythonExec, former.pythonVer, former.broadcastVars,
      former.accumulator))
  }

  /** A plain UDF of one column with this code and the environment of `like`. Without rows its code is only loaded. */
  def loading(like: PythonUDF, code: Array[Byte], input: Expression): PythonUDF =
    PythonUDF(
      like.name, replaced(like, code).func, LongType, Seq(input), PythonEvalType.SQL_BATCHED_UDF,
      udfDeterministic = true)

  /** A plain UDF of one column, that makes a text, with the environment of `like`. */
  def telling(like: PythonUDF, code: Array[Byte], input: Expression): PythonUDF =
    loading(like, code, input).copy(dataType = StringType)

  /** A UDF of the kind of `like`, that makes a text. It gets one column more, before those that `like` gets. */
  def comparing(like: PythonUDF, code: Array[Byte], columns: Seq[Expression]): PythonUDF = {
    val arguments = like.children.zip(columns.tail).map {
      case (NamedArgumentExpression(name, _), column) => NamedArgumentExpression(name, column)
      case (_, column) => column
    }
    PythonUDF(
      like.name, replaced(like, code).func, StringType, columns.head +: arguments, like.evalType,
      udfDeterministic = true)
  }
}
