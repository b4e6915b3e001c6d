package rhino.spark.modify.points

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, Filter, LocalRelation, LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.{DataType, DateType, StringType, TimestampNTZType, TimestampType}

import rhino.spark.modify.records.{Modification, PointFunction}

/**
 * SQL of a modification at a point, with the Python functions that came with it. A call of one of them becomes what
 * PySpark makes of a UDF before names are looked up, so no function of the session counts instead. Spark's optimizer
 * then puts it into a node of its own.
 *
 * @param plan of the application: its Python functions say in which environment those of a modification run
 */
private[modify] class PointSql(functions: Seq[PointFunction], plan: LogicalPlan, session: SparkSession) {
  private lazy val like = PlanFunctions.python(plan).headOption

  /** Throws AnalysisException or ParseException. */
  def condition(text: String, child: LogicalPlan): Expression =
    analysed(Filter(parsed(text), rowsOf(child))) match {
      case Filter(condition, _: LocalRelation) => condition
      case _ => several(text)
    }

  /** Throws AnalysisException or ParseException. */
  def expression(text: String, child: LogicalPlan): Expression = {
    analysed(Project(Seq(Alias(parsed(text), "value")()), rowsOf(child))) match {
      case Project(Seq(Alias(value, _)), _: LocalRelation) => value
      case _ => several(text)
    }
  }

  private def several(text: String): Nothing =
    throw new IllegalArgumentException(s"$text does not make one value of each row")

  /** Each function with these arguments. */
  def called(its: PointFunction, arguments: Seq[Expression]): PythonUDF = PythonUDF(
    its.name, PythonCode.made(its.code, its.python, like, session.sparkContext), DataType.fromJson(its.returns),
    arguments, its.evalType, udfDeterministic = true)

  private def parsed(text: String): Expression = {
    val its = session.sessionState.sqlParser.parseExpression(text)
    if (functions.isEmpty) its
    else its.transform { case call: UnresolvedFunction =>
      functions.find(_.isCalledBy(call)).fold[Expression](call)(called(_, call.arguments))
    }
  }

  private def rowsOf(child: LogicalPlan): LogicalPlan = LocalRelation(child.output)

  private def analysed(plan: LogicalPlan): LogicalPlan = {
    val analyzer = session.sessionState.analyzer
    val made = analyzer.execute(plan)
    analyzer.checkAnalysis(made)
    made
  }
}

private[modify] object PointSql {
  def of(its: Modification, plan: LogicalPlan, session: SparkSession): PointSql =
    new PointSql(its.functions, plan, session)
}

/** The columns of a point have no place for a modification. */
private[spark] class Misfit(reason: String, cause: Throwable = null) extends IllegalArgumentException(reason, cause)

/**
 * What a modification needs of the columns of its point. It is checked before the modification is accepted, and again
 * whenever a batch is planned: a later version of the application may have other columns there. Operators above a point
 * read bytes by the types of its columns, so a value of another type would be read as something else.
 */
private[spark] object PointFit {
  private val Conditions = Seq("DATATYPE_MISMATCH", "FIELD_NOT_FOUND") // of SQL over columns of other types

  /** The column that gets new values. Throws Misfit. */
  def column(name: String, point: String, rows: LogicalPlan): Attribute = rows.output.filter(_.name == name) match {
    case Seq(one) => one
    case Nil => throw new Misfit(s"the point $point has no column $name; it has ${list(rows)}")
    case _ => throw new Misfit(s"the point $point has several columns with the name $name")
  }

  /** `made`: the new value of the column, from `text`. Throws Misfit. */
  def check(column: Attribute, made: Expression, text: String): Unit = {
    if (made.dataType != column.dataType) throw new Misfit(
      s"column ${column.name} is ${column.dataType.sql}, and $text is ${made.dataType.sql}: cast it")
    if (made.nullable && !column.nullable) throw new Misfit(
      s"column ${column.name} is never null, and $text may be: use coalesce($text, ...)")
  }

  /**
   * Spark suggests a few similar names for a column that it does not find. People want to see all there are. Throws
   * Misfit if the columns of the point are not those that SQL names.
   */
  def known[T](point: CollectMetrics)(made: => T): T =
    try made
    catch {
      case error: AnalysisException if is(error, "UNRESOLVED_COLUMN") => throw new Misfit(
          s"the point ${point.name} has no column ${error.getMessageParameters.get("objectName")}; it has " +
            list(point.child), error)
      case error: AnalysisException if Conditions.exists(is(error, _)) => throw new Misfit(error.getMessage, error)
    }

  private def is(error: AnalysisException, condition: String): Boolean =
    Option(error.getCondition).exists(_.startsWith(condition))

  private def list(rows: LogicalPlan): String =
    if (rows.output.isEmpty) "none" else rows.output.map(_.name).mkString(", ")
}

/**
 * The time that SQL of a point sees is that of the batch, as with SQL of the application. Spark has it in the offset
 * log, so a batch that is tried again has the same one.
 */
private[spark] object BatchTime {
  private val Special = "(now|today|yesterday|tomorrow)"
  private val Word = raw"(?is)\s*$Special\b.*".r
  private val Constant = raw"(?is).*\b(date|timestamp|timestamp_ntz|timestamp_ltz)\s*'\s*$Special\b.*".r

  def in(made: Expression, batchMs: => Long): Expression = made.transform {
    case now: CurrentTimestampLike => literal(batchMs, now.dataType, None)
    case local: LocalTimestamp => literal(batchMs, local.dataType, local.timeZoneId)
    case today: CurrentDate => literal(batchMs, today.dataType, today.timeZoneId)
  }

  private def literal(batchMs: Long, its: DataType, zone: Option[String]): Literal =
    CurrentBatchTimestamp(batchMs, its, zone.orElse(Some("UTC"))).toLiteral

  /** Throws IllegalArgumentException for a time that Spark takes from the clock when it plans. */
  def check(made: Expression, text: String): Unit = {
    val found = made.collectFirst {
      case time: CurrentTime => time.sql
      case cast @ Cast(word, DateType | TimestampType | TimestampNTZType, _, _) if special(word) => cast.sql
    }
    found.orElse(Some(text).filter(Constant.matches)).foreach { what =>
      throw new IllegalArgumentException(
        s"$what takes the time from the clock, and a batch that is tried again would differ: use " +
          "current_timestamp(), current_date() or localtimestamp(), which are the time of the batch")
    }
  }

  private def special(word: Expression): Boolean = word.dataType.isInstanceOf[StringType] && word.foldable &&
    Option(word.eval()).exists(its => Word.matches(its.toString))
}
