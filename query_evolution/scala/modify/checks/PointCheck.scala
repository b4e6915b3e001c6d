package rhino.spark.modify.checks

import scala.collection.mutable

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{FunctionRegistry, UnresolvedFunction}
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF, SubqueryExpression, UnresolvedWindowExpression, UnsafeProjection, UnsafeRow, WindowExpression}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession

import rhino.spark.modify.points.{BatchTime, JoinedPoint, PlanFunctions, PointFit, PointSql}
import rhino.spark.modify.records.{Modification, PointFunction, TableJoin}

/** Checks of a filter, a join or columns at a point. They throw IllegalArgumentException or Spark's. */
private[modify] object PointCheck {

  /** `plan`: of the newest batch, without modifications. */
  def check(its: Modification, at: CollectMetrics, plan: LogicalPlan, session: SparkSession): Unit = {
    val sql = PointSql.of(its, plan, session)
    val texts = (its.filter +: its.columns.values.toSeq).filter(_.nonEmpty)
    if (its.functions.nonEmpty) checkFunctions(its, texts, plan, sql, session)
    texts.foreach(RowSqlCheck.check(_, session))
    its.kind match {
      case Modification.Filter =>
        requireSameEachTry(PointFit.known(at)(sql.condition(its.filter, at.child)), its.filter)
      case Modification.Join => checkJoin(its, at, plan, sql)
      case _ => checkColumns(its, at, plan, sql.expression(_, at.child))
    }
  }

  private def checkColumns(
      its: Modification, point: CollectMetrics, plan: LogicalPlan, make: String => Expression): Unit =
    its.columns.foreach { case (name, text) =>
      val attribute = PointFit.column(name, its.target, point.child)
      val made = PointFit.known(point)(make(text))
      requireSameEachTry(made, text)
      PointFit.check(attribute, made, text)
      KeyCheck.check(its.target, plan) { case other: Attribute => other.exprId == attribute.exprId }
    }

  private def requireSameEachTry(made: Expression, text: String): Unit = {
    if (made.exists(_.isInstanceOf[SubqueryExpression])) refuse(
      "a subquery reads its table in each batch: a batch that is tried again would differ. Join the table by " +
        "`rhino modify join`")
    if (!made.deterministic) refuse(s"${made.sql} is not deterministic: a batch that is tried again would differ")
    BatchTime.check(made, text)
  }

  private def checkJoin(its: Modification, point: CollectMetrics, plan: LogicalPlan, sql: PointSql): Unit = {
    val join = its.join.getOrElse(refuse("the record names no table"))
    val made = new JoinedPoint(join, point.child, sql)
    val keys = made.keys
    if (join.filters && its.columns.nonEmpty) refuse(
      s"a ${join.how} join gives no columns of the table: new values of columns need an inner or left join")
    if (join.how == TableJoin.Left && its.columns.isEmpty) refuse("a left join without new values changes nothing")
    checkColumns(its, point, plan, text => known(join)(made.expression(text)))
    if (!join.filters) checkUnique(join, UnsafeProjection.create(keys.map(_._2), made.columns))
  }

  /** Another row for each further one of the table would come out of the point. */
  private def checkUnique(join: TableJoin, key: UnsafeProjection): Unit = {
    val (seen, repeated) = (mutable.Set.empty[UnsafeRow], mutable.Set.empty[UnsafeRow])
    join.table.rows.rows.iterator.map(key(_).copy()).filterNot(_.anyNull).foreach { found => // null equals nothing
      if (!seen.add(found)) repeated += found
    }
    if (repeated.nonEmpty) refuse(
      s"${repeated.size} keys of the table ${join.source.path} have several rows, and a row of the point would come " +
        "out once for each of them: give a table with one row for each key, or use left_semi")
  }

  /** Spark names the fields of a struct, and people look for columns of their table. */
  private def known[T](join: TableJoin)(made: => T): T =
    try made
    catch {
      case error: AnalysisException if error.getCondition == "FIELD_NOT_FOUND" =>
        throw new IllegalArgumentException(
          s"the table has no column ${error.getMessageParameters.get("fieldName")}; it has " +
            join.table.rows.schema.fieldNames.mkString(", "), error)
    }

  private def checkFunctions(
      its: Modification, texts: Seq[String], plan: LogicalPlan, sql: PointSql, session: SparkSession): Unit = {
    val calls = texts.flatMap { text =>
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
    if (PlanFunctions.python(plan).exists(_.name.equalsIgnoreCase(name))) refuse(
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
    for ((least, most) <- function.takes; call <- calls if !call.arguments.exists(PlanFunctions.isNamed)) {
      val passed = call.arguments.size
      if (passed < least || passed > most) refuse(s"$name is called with $passed arguments, and the function takes " +
        bounds(least, most))
    }
  }

  /** How many arguments a function takes. */
  def bounds(least: Int, most: Int): String =
    if (least == most) s"$least" else if (most == Int.MaxValue) s"$least or more" else s"$least to $most"

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}

/** SQL of a point makes one value of each row. Spark would name its own plan for what does not. */
private[modify] object RowSqlCheck {
  private val Groups = Map(
    "agg_funcs" -> "is an aggregate function", "window_funcs" -> "is a window function",
    "generator_funcs" -> "makes several rows of one")
  private val TimeWindows = Set("window", "session_window")

  /** Throws IllegalArgumentException. */
  def check(text: String, session: SparkSession): Unit = session.sessionState.sqlParser.parseExpression(text).foreach {
    case _: WindowExpression | _: UnresolvedWindowExpression => refuse(text, "has an OVER clause")
    case aggregate: AggregateExpression => // of functions that Spark's grammar names
      refuse(text, s"${aggregate.aggregateFunction.prettyName} is an aggregate function")
    case call: UnresolvedFunction => call.nameParts match {
        case Seq(name) => why(name.toLowerCase).foreach(what => refuse(text, s"$name $what"))
        case _ => ()
      }
    case _ => ()
  }

  private def why(name: String): Option[String] =
    if (TimeWindows(name)) Some("groups rows by time")
    else FunctionRegistry.builtin.lookupFunction(FunctionIdentifier(name)).map(_.getGroup).flatMap(Groups.get)

  private def refuse(text: String, what: String): Nothing = throw new IllegalArgumentException(
    s"$text: $what, and SQL of a point makes one value of each row. Let the query compute it below the point")
}
