package rhino.spark.modify

import scala.collection.mutable

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession

/** Checks of a join at a point. They throw IllegalArgumentException or Spark's. */
private[modify] object JoinCheck {
  def check(its: Modification, point: CollectMetrics, plan: LogicalPlan, session: SparkSession): Unit = {
    val join = its.join.getOrElse(refuse("the record names no table"))
    val made = new JoinedPoint(join, point.child, PointSql.of(its, plan, session))
    val keys = made.keys
    if (join.filters && its.columns.nonEmpty) refuse(
      s"a ${join.how} join gives no columns of the table: new values of columns need an inner or left join")
    if (join.how == TableJoin.Left && its.columns.isEmpty) refuse("a left join without new values changes nothing")
    PlanCheck.checkColumns(its, point, plan, text => known(join)(made.expression(text)))
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

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
