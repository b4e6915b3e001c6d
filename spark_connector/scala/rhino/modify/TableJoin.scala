package rhino.spark.modify

import org.json4s._

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
