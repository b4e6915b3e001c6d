package rhino.spark.driver

import scala.util.Try

import org.json4s._
import org.json4s.jackson.JsonMethods.parse

import rhino.spark.wire.Schema.{message, Message}

/**
 * How far a query was behind a source when a batch began.
 *
 * @param source its name
 * @param unit   of the numbers: "offsets", or the name of a metric of the source
 * @param behind what is left to read after the batch
 * @param read   what the batch read; 0: unknown
 */
private[spark] case class SourceLag(source: String, unit: String, behind: Double, read: Double) {
  def report: Message = message("SourceLag", "source" -> source, "unit" -> unit, "behind" -> behind, "read" -> read)
}

private[spark] object SourceLag {
  val ReportedMax = 64 // of one query
  private val Largest = 1e18
  private val Offsets = "offsets"
  private val Identity = """(?:[\w$]+\.)*([\w$]+)@[0-9a-f]+""".r // of an object without a description of its own

  /** Names for sources, from Spark's descriptions: the same in every run, and different within a query. */
  def names(descriptions: Seq[String]): Seq[String] = {
    val plain = descriptions.map {
      case null => "source"
      case Identity(name) => name
      case other => other
    }
    plain.zipWithIndex.map { case (name, at) =>
      val number = plain.take(at + 1).count(_ == name)
      if (number == 1) name else s"$name #$number"
    }
  }

  /**
   * The offsets are JSON, as in Spark's progress of a source, or null. Sources that limit their batches report their
   * latest offset. If offsets are numbers, as of Kafka, their difference is the lag. Other sources may have it as
   * metrics, for example `numFilesOutstanding`. Most sources report neither.
   */
  def of(source: String, start: String, end: String, latest: String, metrics: Map[String, String]): Seq[SourceLag] = {
    val byOffsets = for {
      last <- numbers(latest)
      its <- numbers(end)
      behind <- difference(last, its)
    } yield SourceLag(source, Offsets, behind, numbers(start).flatMap(difference(its, _)).getOrElse(0.0))
    byOffsets.map(Seq(_)).getOrElse(byMetrics(source, metrics))
  }

  /** Of several statistics of one measure the largest one says it. */
  private def byMetrics(source: String, metrics: Map[String, String]): Seq[SourceLag] = for {
    (name, text) <- metrics.toSeq.sortBy(_._1)
    if name.endsWith("Outstanding") || name.endsWith("BehindLatest")
    if !name.startsWith("avg") && !name.startsWith("min")
    value <- Try(text.toDouble).toOption
    if value >= 0 && value <= Largest
  } yield SourceLag(source, name, value, 0)

  /** The sum of what `later` has more than `earlier`. Parts that only one of them has are left out. */
  private def difference(later: Map[String, Double], earlier: Map[String, Double]): Option[Double] = {
    val common = later.keySet & earlier.keySet
    Option.when(common.nonEmpty)(common.iterator.map(part => (later(part) - earlier(part)).max(0)).sum.min(Largest))
  }

  /** The numbers of an offset in JSON, by their path. None if it has anything else, such as a text. */
  private def numbers(offset: String): Option[Map[String, Double]] =
    Option(offset).flatMap(text => Try(parse(text)).toOption).flatMap(leaves("", _)).filter(_.nonEmpty)

  private def leaves(path: String, value: JValue): Option[Map[String, Double]] = value match {
    case JInt(number) => Some(Map(path -> number.toDouble))
    case JLong(number) => Some(Map(path -> number.toDouble))
    case JDouble(number) => Some(Map(path -> number))
    case JObject(fields) =>
      val parts = fields.map { case (name, part) => leaves(s"$path/$name", part) }
      Option.when(parts.forall(_.isDefined))(parts.flatten.flatten.toMap)
    case _ => None
  }
}
