package rhino.spark.modify.records

import java.lang.ref.{SoftReference, WeakReference}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32C

import scala.collection.immutable.ArraySeq
import scala.util.Try

import org.json4s.JsonDSL._
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.joins.HashedRelationBroadcastMode
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * How the rows of a point are joined with a static table.
 *
 * @param source where the table is read from at the check, once
 * @param on     columns of the table by those of the point. All must be equal.
 * @param how    inner, left, left_semi or left_anti
 * @param table  the rows as they were at the check
 */
private[spark] case class TableJoin(
    source: TableSource, on: Map[String, String], how: String, table: StaticTable = StaticTable.none) {

  /** Only rows pass or do not pass. */
  def filters: Boolean = how == TableJoin.Semi || how == TableJoin.Anti
}

/**
 * What Spark's reader is told.
 *
 * @param schema as DDL, "": the format knows it, or Spark infers it
 */
private[spark] case class TableSource(path: String, format: String, schema: String, options: Map[String, String])

private[spark] object TableJoin {
  val Inner = "inner"
  val Left = "left"
  val Semi = "left_semi"
  val Anti = "left_anti"
  private implicit val formats: Formats = DefaultFormats

  /** Throws MappingException or IllegalArgumentException. */
  def read(json: JValue): Option[TableJoin] = json match {
    case its: JObject =>
      def one[T: Manifest](name: String): T = (its \ name).extract[T]
      val source = TableSource(
        one[String]("table"), one[String]("format"), one[String]("schema"), one[Map[String, String]]("options"))
      val how = one[String]("how")
      require(Set(Inner, Left, Semi, Anti)(how), s"how '$how'")
      require(one[Map[String, String]]("on").nonEmpty, "no columns to join on")
      Some(TableJoin(source, one[Map[String, String]]("on"), how))
    case _ => None
  }
}

/** All rows of a table that a modification joins. They are never changed. */
private[spark] case class TableRows(schema: StructType, rows: Seq[UnsafeRow]) {

  def bytes: Long = rows.map(TableRows.sizeOf).sum

  /**
   * As a file: a line of JSON with the schema and a checksum, then each row as Spark has it in memory, after its
   * length. Spark keeps state in the same form, so what reads the state of the query reads its tables.
   */
  def toFile: Array[Byte] = {
    val body = ByteBuffer.allocate(bytes.toInt) // it is limited at the check
    rows.foreach(row => body.putInt(row.getSizeInBytes).put(row.getBytes))
    val head = ("schema" -> schema.json) ~ ("rows" -> rows.size) ~ ("crc32c" -> TableRows.checksum(body.array, 0))
    (compact(render(head)) + "\n").getBytes(UTF_8) ++ body.array
  }
}

private[spark] object TableRows {
  private val LengthBytes = 4
  private implicit val formats: Formats = DefaultFormats

  def sizeOf(row: UnsafeRow): Long = LengthBytes + row.getSizeInBytes

  /** Throws IllegalArgumentException if the file is damaged. */
  def ofFile(bytes: Array[Byte]): TableRows = {
    val end = bytes.indexOf('\n'.toByte)
    val head = Try(parse(new String(bytes, 0, math.max(end, 0), UTF_8))).getOrElse(JNothing)
    require((head \ "crc32c").extractOpt[Long].contains(checksum(bytes, end + 1)), "its checksum is wrong")
    val schema = DataType.fromJson((head \ "schema").extract[String]).asInstanceOf[StructType]
    val body = ByteBuffer.wrap(bytes, end + 1, bytes.length - end - 1)
    val rows = Array.fill((head \ "rows").extract[Int]) {
      val row = new Array[Byte](body.getInt())
      body.get(row)
      val made = new UnsafeRow(schema.size)
      made.pointTo(row, row.length)
      made
    }
    TableRows(schema, ArraySeq.unsafeWrapArray(rows))
  }

  private def checksum(bytes: Array[Byte], from: Int): Long = {
    val sum = new CRC32C
    sum.update(bytes, from, bytes.length - from)
    sum.getValue
  }
}

/**
 * A table in the folder of the modifications. Its rows leave the memory when that is scarce. Executors get them once,
 * as what a join looks keys up in, and have that as long as a plan has it.
 */
private[spark] class StaticTable(load: () => TableRows, loaded: Option[TableRows] = None) {
  private var kept = new SoftReference(loaded.orNull)
  private var sent = new WeakReference[StaticTable.Sent](null)

  /** Throws IllegalStateException if the file is not there, or damaged. */
  def rows: TableRows = synchronized {
    Option(kept.get).getOrElse {
      val read = load()
      kept = new SoftReference(read)
      read
    }
  }

  /** Throws as `rows`. */
  def broadcast(mode: HashedRelationBroadcastMode, context: SparkContext): StaticTable.Sent = synchronized {
    Option(sent.get).filter(_.mode == mode).getOrElse {
      val all = rows.rows
      val made = StaticTable.Sent(mode, context.broadcast[Any](mode.transform(all.iterator, Some(all.size.toLong))))
      sent = new WeakReference(made)
      made
    }
  }
}

private[spark] object StaticTable {
  case class Sent(mode: HashedRelationBroadcastMode, relation: Broadcast[Any])

  /** That is not in the folder, or not yet. */
  def of(rows: TableRows): StaticTable = new StaticTable(() => rows)

  val none: StaticTable = new StaticTable(() => throw new IllegalStateException("the table is not read yet"))
}
