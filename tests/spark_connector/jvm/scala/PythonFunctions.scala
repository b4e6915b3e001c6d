package org.apache.spark.sql.execution.streaming.state
package seam

import org.apache.spark.api.python.{PythonEvalType, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonUDF}
import org.apache.spark.sql.types.BooleanType

/** Python functions that no worker gets. Spark keeps their class to itself. */
object PythonFunctions {
  def of(code: Seq[Byte], input: Expression): PythonUDF = PythonUDF(
    "passes", new SimplePythonFunction(code, null, null, "python3", "3.11", null, null), BooleanType, Seq(input),
    PythonEvalType.SQL_BATCHED_UDF, udfDeterministic = true)
}
