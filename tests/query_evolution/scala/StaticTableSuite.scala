package rhino.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{Decimal, DecimalType, IntegerType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

import rhino.spark.modify.records.{Modification, StaticTable, TableRows, TableSource}

/** The table of a join, as it lies beside a query checkpoint. */
class StaticTableSuite extends Suite {
  private val schema =
    new StructType().add("id", IntegerType, nullable = false).add("name", StringType).add("price", DecimalType(20, 2))

  private def row(values: Any*): UnsafeRow = UnsafeProjection.create(schema)(InternalRow(values: _*)).copy()

  private val table = TableRows(schema, Seq(
    row(1, UTF8String.fromString("one\nline"), Decimal(BigDecimal("1.25"), 20, 2)), row(2, null, null)))

  test("a table is read as it was written") {
    expect(TableRows.ofFile(table.toFile), table)
    expect(TableRows.ofFile(TableRows(schema, Nil).toFile), TableRows(schema, Nil))
  }

  test("each damage is noticed") {
    val written = table.toFile
    for (place <- written.indexOf('\n') + 1 until written.length) {
      val damaged = written.clone
      damaged(place) = (damaged(place) ^ 4).toByte
      fails[IllegalArgumentException]("its checksum is wrong")(TableRows.ofFile(damaged))
    }
    for (cut <- Seq(0, 1, 20, written.length - 1))
      fails[IllegalArgumentException]("its checksum is wrong")(TableRows.ofFile(written.take(cut)))
  }

  test("a table is loaded when it is needed, and kept") {
    var loads = 0
    val kept = new StaticTable(() => { loads += 1; table })
    expect((kept.rows, kept.rows, loads), (table, table, 1))
    val written = new StaticTable(() => throw new IllegalStateException("the file is missing"), Some(table))
    expect(written.rows, table)
    fails[IllegalStateException]("the file is missing")(
      new StaticTable(() => throw new IllegalStateException("the file is missing")).rows)
  }

  private def record(join: String): String = s"""{"kind": "join", "target": "scored", "removes": false,
    "dry_run": false, "code": "", "eval_type": 0, "returns": "", "filter": "", "columns": {"y": "y + table.w"},
    "join": $join}"""

  private val fields = """{"table": "/t", "format": "csv", "schema": "id int", "options": {"header": "true"},
    "on": {"k": "id"}, "how": "inner"}"""

  test("a record says how a table is read and joined") {
    val its = Modification.read(3, record(fields))
    expect(its.join.get.source, TableSource("/t", "csv", "id int", Map("header" -> "true")))
    expect((its.join.get.on, its.join.get.how, its.columns), (Map("k" -> "id"), "inner", Map("y" -> "y + table.w")))
    expect(its.withTable(StaticTable.of(table)).join.get.table.rows, table)
    fails[IllegalStateException]("is not read yet")(its.join.get.table.rows)
    expect(Modification.read(3, record("null")).join, None)
  }

  test("a record with an unknown kind of join is not readable") {
    fails[IllegalArgumentException]("record 3 is not readable", "how 'cross'")(
      Modification.read(3, record(fields.replace("inner", "cross"))))
  }
}
