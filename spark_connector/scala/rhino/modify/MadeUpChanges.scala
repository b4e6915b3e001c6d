package rhino.spark.modify

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, RowOrdering, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LogicalPlan}
import org.apache.spark.sql.catalyst.util.QuotingUtils
import org.apache.spark.sql.types.{BooleanType, StructField, StructType}

/**
 * Changes at a point that a run plans while it is young, and throws away. The first change of each kind would take
 * longer than later ones: Spark's planner and Rhino's operators load classes for it, and interpret them.
 */
private[spark] object MadeUpChanges {
  private val PandasUdf = 200 // SQL_SCALAR_PANDAS_UDF: part of PySpark's protocol
  private val Name = "rhino_made_up"

  /**
   * A filter that calls a Python function, and a join, at the first point. None if no column of it fits both. `python`:
   * the version of Python that the executors have, if workers run. Then the function has code.
   */
  def of(plan: LogicalPlan, python: Option[String] = None): Seq[Modification] =
    plan.collectFirst { case point: CollectMetrics if point.isStreaming => point }.toSeq.flatMap { point =>
      column(point).toSeq.flatMap(its => Seq(filter(point.name, its, python), join(point.name, its)))
    }

  private def column(point: CollectMetrics): Option[Attribute] = {
    val columns = point.child.output
    columns.find(its => RowOrdering.isOrderable(its.dataType) && columns.count(_.name.equalsIgnoreCase(its.name)) == 1)
  }

  private def filter(point: String, its: Attribute, python: Option[String]): Modification = {
    val none = PointFunction(Name, Array.empty, PandasUdf, BooleanType.json, "", None, Array.empty)
    val function = python.fold(none) { version =>
      none.copy(code = MadeUpCode.Imports, python = version, blank = MadeUpCode.IsNull)
    }
    made(point, Modification.Filter).copy(filter = s"$Name(${quoted(its)})", functions = Seq(function))
  }

  /** With a table of one row, which has no values. */
  private def join(point: String, its: Attribute): Modification = {
    val schema = StructType(Seq(StructField("key", its.dataType), StructField("value", its.dataType)))
    val row = UnsafeProjection.create(schema)(InternalRow(null, null)).copy()
    val table = StaticTable.of(TableRows(schema, Seq(row)))
    val source = TableSource("", "", "", Map.empty)
    val join = TableJoin(source, Map(its.name -> "key"), TableJoin.Left, table)
    val columns = Map(its.name -> s"coalesce(${JoinedPoint.Table}.value, ${quoted(its)})")
    made(point, Modification.Join).copy(join = Some(join), columns = columns)
  }

  private def made(point: String, kind: String): Modification =
    Modification(0, kind, point, removes = false, dryRun = true)

  private def quoted(its: Attribute): String = QuotingUtils.quoteIdentifier(its.name)
}
