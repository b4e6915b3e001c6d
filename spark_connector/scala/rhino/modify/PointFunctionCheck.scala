package rhino.spark.modify

import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession

/** Checks of the Python functions that come with SQL at a point. They throw IllegalArgumentException or Spark's. */
private[modify] object PointFunctionCheck {

  /** `plan`: of the newest batch, without modifications. */
  def check(its: Modification, plan: LogicalPlan, session: SparkSession): Unit = if (its.functions.nonEmpty) {
    val sql = PointSql.of(its, plan, session)
    val calls = (its.filter +: its.columns.values.toSeq).filter(_.nonEmpty).flatMap { text =>
      session.sessionState.sqlParser.parseExpression(text).collect { case call: UnresolvedFunction => call }
    }
    its.functions.foreach { function =>
      checkName(function.name, plan, session)
      if (!PythonUDF.isScalarPythonUDF(sql.called(function, Nil))) refuse(
        s"${function.name} is of PySpark's kind ${function.evalType}, and SQL calls functions that make one value of " +
          "each row: make it with udf, pandas_udf or arrow_udf")
      checkCalls(function, calls.filter(function.isCalledBy))
    }
  }

  /** One name is one function for everybody, and for `rhino modify function`, too. */
  private def checkName(name: String, plan: LogicalPlan, session: SparkSession): Unit = {
    val catalog = session.sessionState.catalog
    val its = FunctionIdentifier(name)
    if (catalog.isBuiltinFunction(name) || catalog.isTemporaryFunction(its) || catalog.isPersistentFunction(its))
      refuse(s"$name is a function of SQL in this query already: give the new one another name")
    if (PointSql.functionsOf(plan).exists(_.name.equalsIgnoreCase(name))) refuse(
      s"the query has a Python function $name itself: give the new one another name, or replace that one by " +
        "`rhino modify function`")
  }

  private def checkCalls(function: PointFunction, calls: Seq[UnresolvedFunction]): Unit = {
    val name = function.name
    if (calls.isEmpty) refuse(s"the function $name is given, and no expression calls it: leave it out")
    calls.foreach { call =>
      if (call != UnresolvedFunction(call.nameParts, call.arguments, isDistinct = false)) refuse(
        s"$name is called for each row: distinct, filter, order and nulls clauses are those of aggregate functions")
    }
    for ((least, most) <- function.takes; call <- calls if !call.arguments.exists(PointSql.isNamed)) {
      val passed = call.arguments.size
      if (passed < least || passed > most) refuse(s"$name is called with $passed arguments, and the function takes " +
        PlanCheck.bounds(least, most))
    }
  }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
