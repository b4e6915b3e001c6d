package rhino.spark.modify.comparison

import scala.util.Try
import scala.util.control.NonFatal

import org.json4s.JObject
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Cast, Literal, ScalaUDF}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.types.{ArrayType, DataType, MapType, StringType, StructType}

import rhino.spark.modify.records.Modification

/**
 * Old against new for functions of Scala and Java: a task calls both with the same rows, as Spark calls them. So times
 * have what Spark does with arguments and results. Errors are caught, because Spark would log them. The answer has the
 * form of comparer.py.
 */
private[spark] class JarComparison(old: ScalaUDF, changed: ScalaUDF, zone: String) extends Serializable {
  private val kind = old.dataType
  private val types = old.children.map(_.dataType)
  private val never = old.inputPrimitives.zipWithIndex.collect { case (true, place) => place }

  private type Made = (Either[String, Any], Long) // an error or a value, and nanoseconds

  def result(rows: Iterator[InternalRow]): String = {
    val all = rows.zipWithIndex.map { case (row, place) => (row, both(row, place)) }.toSeq
    val differing = all.filterNot { case (_, (before, after)) => same(before._1, after._1) }
    val examples = differing.take(JarComparison.ExamplesMax).map { case (row, (before, after)) =>
      val arguments = types.indices.map(place => text(row.get(place, types(place)), types(place)))
      ("given" -> cut(arguments.mkString("(", ", ", ")"))) ~ ("old" -> said(before._1)) ~ ("new" -> said(after._1))
    }
    compact(render(
      ("rows" -> all.size) ~ ("different" -> differing.size) ~ ("old" -> version(all.map(_._2._1))) ~
        ("new" -> version(all.map(_._2._2))) ~ ("examples" -> examples)))
  }

  /** Neither version always has the caches that the other one has warmed. */
  private def both(row: InternalRow, place: Int): (Made, Made) =
    if (never.exists(row.isNullAt)) { // the query calls neither
      val none: Made = (Right(null), 0L)
      (none, none)
    } else if (place % 2 == 0) {
      val before = called(old, row)
      (before, called(changed, row))
    } else {
      val after = called(changed, row)
      (called(old, row), after)
    }

  private def called(its: ScalaUDF, row: InternalRow): Made = {
    val begun = System.nanoTime()
    val made =
      try Right(its.eval(row))
      catch {
        case error @ (NonFatal(_) | _: LinkageError) => Left(cut(Option(error.getCause).getOrElse(error).toString))
      }
    (made, System.nanoTime() - begun)
  }

  /** The first call of all loads classes, and is not timed. */
  private def version(made: Seq[Made]): JObject = {
    val failed = made.collect { case (Left(error), _) => error }
    val us = if (made.size > 1) Some(made.tail.map(_._2).sum / 1000.0 / (made.size - 1)) else None
    ("failed" -> failed.size) ~ ("error" -> failed.headOption.getOrElse("")) ~ ("us" -> us.map(JarComparison.rounded))
  }

  private def same(before: Either[String, Any], after: Either[String, Any]): Boolean = (before, after) match {
    case (Right(one), Right(other)) =>
      Literal(one, kind) == Literal(other, kind) ||
        hasMaps(kind) && text(one, kind) == text(other, kind) // Spark's maps have no equality
    case (Left(one), Left(other)) => one == other
    case _ => false
  }

  private def hasMaps(of: DataType): Boolean = of match {
    case _: MapType => true
    case list: ArrayType => hasMaps(list.elementType)
    case struct: StructType => struct.exists(field => hasMaps(field.dataType))
    case _ => false
  }

  private def said(made: Either[String, Any]): String = made.fold(identity, text(_, kind))

  private def text(value: Any, of: DataType): String =
    if (value == null) "null"
    else cut(Try(String.valueOf(Cast(Literal(value, of), StringType, Some(zone)).eval())).getOrElse(value.toString))

  private def cut(text: String): String = text.take(JarComparison.TextMax)
}

private[modify] object JarComparison {
  private val ExamplesMax = 5
  private val TextMax = 200 // characters of a value
  private def rounded(us: Double): Double = math.round(us * 1000) / 1000.0

  /** Runs in an executor, apart from the query. */
  def of(its: Modification, sample: Sample[ScalaUDF], session: SparkSession): Option[String] = {
    val context = session.sparkContext
    val columns = sample.types.zipWithIndex.map { case (kind, place) => BoundReference(place, kind, nullable = true) }
    val old = sample.function.copy(children = columns)
    val changed = old.copy(function = its.jar.get.loaded(columns.size, context).asFunction)
    val comparison = new JarComparison(old, changed, session.sessionState.conf.sessionLocalTimeZone)
    context.makeRDD(sample.rows, 1).mapPartitions(rows => Iterator(comparison.result(rows))).collect().headOption
  }
}
