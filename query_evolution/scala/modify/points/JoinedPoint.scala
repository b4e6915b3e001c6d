package rhino.spark.modify.points

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, Cast, Expression, GetStructField}
import org.apache.spark.sql.catalyst.plans.{Inner, JoinType, LeftAnti, LeftOuter, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils
import org.apache.spark.sql.types._

import rhino.spark.modify.records.TableJoin

/**
 * The rows of a point with those of a table that is broadcast. Expressions name the columns of the table as
 * `table.<column>`. Any other name is a column of the point.
 */
private[spark] class JoinedPoint(join: TableJoin, child: LogicalPlan, sql: PointSql) {
  private val rows = join.table.rows

  /** Those of the table. */
  val columns: Seq[Attribute] = DataTypeUtils.toAttributes(rows.schema)

  /** The columns as they come out of the join. */
  private val joined = if (join.how == TableJoin.Left) columns.map(_.withNullability(true)) else columns

  // Names of its fields cannot be mixed up with those of the point.
  private val struct = AttributeReference(
    JoinedPoint.Table, StructType(rows.schema), nullable = join.how == TableJoin.Left)()

  def plan: LogicalPlan = {
    val (left, right) = keys.map { case (of, its) => equal(of, its) }.unzip
    PointJoin(kind, left, right, child, PointTable(join.table, columns))
  }

  /** Columns of the point and of the table that must be equal. Throws Misfit. */
  def keys: Seq[(Attribute, Attribute)] = join.on.toSeq.sorted.map { case (of, its) =>
    val (key, column) = (one(of, child.output, "the point"), one(its, columns, "the table"))
    checkTypes(key, column)
    (key, column)
  }

  /** Throws Misfit, AnalysisException or ParseException. */
  def expression(text: String): Expression = {
    if (child.output.exists(_.name.equalsIgnoreCase(JoinedPoint.Table))) refuse(
      s"the point has a column ${JoinedPoint.Table}, and ${JoinedPoint.Table}.NAME is a column of the joined table: " +
        "let the query rename it")
    val found = sql.expression(text, LocalRelation(child.output :+ struct))
    val made = found.transform {
      case GetStructField(its: Attribute, place, _) if its.exprId == struct.exprId => joined(place)
    }
    if (made.references.contains(struct)) refuse(s"$text takes all of ${JoinedPoint.Table}: name one of its columns")
    made
  }

  private def kind: JoinType = join.how match {
    case TableJoin.Inner => Inner
    case TableJoin.Left => LeftOuter
    case TableJoin.Semi => LeftSemi
    case _ => LeftAnti
  }

  /** Their types are the same, or integers of different size. */
  private def equal(of: Attribute, its: Attribute): (Expression, Expression) = {
    val wider = Seq(of.dataType, its.dataType).maxBy(_.defaultSize)
    def cast(key: Attribute): Expression = if (key.dataType == wider) key else Cast(key, wider)
    (cast(of), cast(its))
  }

  private def checkTypes(key: Attribute, column: Attribute): Unit = {
    val (its, other) = (key.dataType, column.dataType)
    val same = its == other || JoinedPoint.Integers(its) && JoinedPoint.Integers(other)
    if (!same) refuse(
      s"column ${key.name} is ${its.sql}, and ${column.name} of the table is ${other.sql}: give the table a schema " +
        "with the same type")
    val plain = its match {
      case _: StringType => UnsafeRowUtils.isBinaryStable(its) // not with a collation that folds
      case _: DecimalType | BooleanType | DateType | TimestampType | TimestampNTZType | BinaryType => true
      case _ => JoinedPoint.Integers(its)
    }
    if (!plain) refuse(s"column ${key.name} is ${its.sql}: a join takes integers, decimals, texts, dates and times")
  }

  private def one(name: String, among: Seq[Attribute], whose: String): Attribute =
    among.filter(_.name == name) match {
      case Seq(found) => found
      case Nil => refuse(s"$whose has no column $name; it has ${among.map(_.name).mkString(", ")}")
      case _ => refuse(s"$whose has several columns with the name $name")
    }

  private def refuse(reason: String): Nothing = throw new Misfit(reason)
}

private[modify] object JoinedPoint {
  /** How expressions name the table. */
  val Table = "table"
  private val Integers = Set[DataType](ByteType, ShortType, IntegerType, LongType)
}
