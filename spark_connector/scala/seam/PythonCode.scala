package org.apache.spark.sql.execution.streaming.state
package seam

import java.util.{ArrayList, HashMap, Locale}

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.api.python.{PythonBroadcast, PythonEvalType, PythonException, PythonFunction, SimplePythonFunction}
import org.apache.spark.broadcast.Broadcast
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

  /**
   * A function with this code in the environment of `like`. Without one, it is the environment that PySpark's driver
   * makes of settings and variables: the executable, files, and one seed for hashes, so that each try hashes the same.
   * `version`: of Python; a worker of another one refuses the code.
   */
  def made(code: Array[Byte], version: String, like: Option[PythonUDF], context: SparkContext): PythonFunction = {
    val none = new ArrayList[Broadcast[PythonBroadcast]]
    like.map(_.func) match {
      case Some(its) => new SimplePythonFunction(
        code, its.envVars, its.pythonIncludes, its.pythonExec, version, none, its.accumulator)
      case None =>
        val settings = context.conf
        val python =
          settings.getOption("spark.pyspark.python").orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse("python3")
        val variables = settings.getExecutorEnv.toMap + ("PYTHONHASHSEED" -> sys.env.getOrElse("PYTHONHASHSEED", "0"))
        val archives = settings.get("spark.submit.pyFiles", "").split(",").map(_.split("/").last)
          .filter(file => Seq(".zip", ".egg", ".jar").exists(file.toLowerCase(Locale.ROOT).endsWith))
        new SimplePythonFunction(
          code, new HashMap(variables.asJava), new ArrayList(archives.toSeq.asJava), python, version, none,
          null) // Spark Connect has no accumulator, either
    }
  }

  /** A plain UDF with this code and the environment of `like`. Without rows its code is only loaded. */
  def loading(like: PythonUDF, code: Array[Byte]): PythonUDF =
    PythonUDF(
      like.name, replaced(like, code).func, LongType, Nil, PythonEvalType.SQL_BATCHED_UDF, udfDeterministic = true)

  /** The same function for a worker that only loads it. One of iterators would be called, even without rows. */
  def loading(its: PythonUDF): PythonUDF = its.evalType match {
    case PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF => its.copy(evalType = PythonEvalType.SQL_SCALAR_PANDAS_UDF)
    case PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF => its.copy(evalType = PythonEvalType.SQL_SCALAR_ARROW_UDF)
    case _ if PythonUDF.isScalarPythonUDF(its) => its
    case _ => its.copy(evalType = PythonEvalType.SQL_BATCHED_UDF)
  }

  /** Whether a worker gets its rows without Arrow. */
  def isPlain(its: PythonUDF): Boolean = its.evalType == PythonEvalType.SQL_BATCHED_UDF

  /** Whether a worker has executed code that raised this. Anything else may be different with another worker. */
  def isErrorOfCode(error: Throwable): Boolean = error.isInstanceOf[PythonException]

  /** A plain UDF of one column, that makes a text, with the environment of `like`. */
  def telling(like: PythonUDF, code: Array[Byte], input: Expression): PythonUDF =
    loading(like, code).copy(dataType = StringType, children = Seq(input))

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
