package rhino.spark.modify

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}

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
