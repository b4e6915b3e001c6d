package rhino.spark

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{CollectMetrics, LocalRelation}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import rhino.spark.modify.points.{BatchTime, JoinedPoint, Misfit, PointFit}
import rhino.spark.modify.records.{StaticTable, TableJoin, TableRows, TableSource}

/** Which columns of a point take new values and joins, and which time they see. */
class PointFitSuite extends Suite {
  private val (y, name) = (AttributeReference("y", IntegerType)(), AttributeReference("name", StringType)())
  private val rows = LocalRelation(y, name, AttributeReference("name", StringType)())
  private val point = CollectMetrics("scored", Nil, rows, 0)
  private val batchMs = 1_600_000_000_123L

  test("a value has the type of its column, and may be null only if the column may") {
    val never = AttributeReference("one", IntegerType, nullable = false)()
    PointFit.check(y, Literal(1), "1")
    fails[Misfit]("column y is INT, and big is BIGINT: cast it")(PointFit.check(y, Literal(1L), "big"))
    fails[Misfit]("column y is INT, and text is STRING: cast it")(PointFit.check(y, name, "text"))
    val list = AttributeReference("list", ArrayType(LongType, containsNull = false))()
    fails[Misfit]("column list is ARRAY")(PointFit.check(list, list.withDataType(ArrayType(LongType)), "other"))
    PointFit.check(never, Literal(1), "1")
    fails[Misfit]("column one is never null, and y may be: use coalesce(y, ...)")(PointFit.check(never, y, "y"))
  }

  test("a column of a point is there once") {
    expect(PointFit.column("y", "scored", rows), y)
    fails[Misfit]("the point scored has no column z; it has y, name, name")(PointFit.column("z", "scored", rows))
    fails[Misfit]("the point scored has several columns with the name name")(PointFit.column("name", "scored", rows))
  }

  private def error(condition: String, parameters: (String, String)*) =
    new AnalysisException(condition, parameters.toMap)

  test("SQL for other columns is a misfit, and other errors of SQL are not") {
    fails[Misfit]("the point scored has no column `z`; it has y, name, name")(
      PointFit.known(point)(throw error("UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", "objectName" -> "`z`")))
    fails[Misfit]("FIELD_NOT_FOUND")(
      PointFit.known(point)(throw error("FIELD_NOT_FOUND", "fieldName" -> "a", "fields" -> "b")))
    fails[AnalysisException]("TABLE_OR_VIEW_NOT_FOUND")(
      PointFit.known(point)(throw error("TABLE_OR_VIEW_NOT_FOUND", "relationName" -> "a", "searchPath" -> "b")))
  }

  test("keys of a join have the type of the table's columns, or are integers as well") {
    def keys(of: String, kind: DataType) = {
      val table = StaticTable.of(TableRows(StructType(Seq(StructField("id", kind))), Nil))
      val join = TableJoin(TableSource("t", "parquet", "", Map.empty), Map(of -> "id"), "inner", table)
      new JoinedPoint(join, rows, null).keys.map(_._1)
    }
    expect(keys("y", LongType), Seq(y))
    fails[Misfit]("column y is INT, and id of the table is STRING: give the table a schema")(keys("y", StringType))
    fails[Misfit]("the point has no column z; it has y, name, name")(keys("z", LongType))
  }

  test("the time is that of the batch, whatever names it") {
    val zone = Some("Asia/Tokyo") // its day has begun
    def in(made: Expression) = BatchTime.in(made, batchMs)
    for (now <- Seq(CurrentTimestamp(), Now())) expect(in(now), Literal(batchMs * 1000, TimestampType))
    expect(in(UnixTimestamp(CurrentTimestamp(), Literal("x"))).children.head, Literal(batchMs * 1000, TimestampType))
    val late = 1_600_000_000_000L + 6 * 3_600_000 // 18:26 UTC
    expect(BatchTime.in(CurrentDate(zone), late), Literal(18519, DateType))
    expect(BatchTime.in(CurrentDate(Some("UTC")), late), Literal(18518, DateType))
    expect(in(LocalTimestamp(Some("UTC"))), Literal(batchMs * 1000, TimestampNTZType))
    expect(in(y), y)
  }

  test("a time that Spark takes from the clock is refused") {
    def refused(made: Expression, text: String): Boolean =
      try { BatchTime.check(made, text); false } catch { case _: IllegalArgumentException => true }
    val utc = Some("UTC")
    def word(its: String) = Cast(Literal(UTF8String.fromString(its), StringType), TimestampType, utc)
    expect(Seq("now", " Today UTC", "yesterday").map(its => refused(word(its), "")), Seq(true, true, true))
    expect(Seq("2020-01-01", "epoch", "nowhere").map(its => refused(word(its), "")), Seq(false, false, false))
    expect(refused(CurrentTime(Literal(6), utc), ""), true)
    expect(refused(Cast(name, DateType, utc), "cast(name as date)"), false)
    expect(refused(y, "at > timestamp 'now'"), true)
    expect(refused(y, "day = DATE'tomorrow'"), true)
    expect(refused(y, "name = 'today' or at > timestamp'2020-01-01'"), false)
  }
}
