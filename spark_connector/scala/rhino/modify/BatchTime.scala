package rhino.spark.modify

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.{DataType, DateType, StringType, TimestampNTZType, TimestampType}

/**
 * The time that SQL of a point sees is that of the batch, as with SQL of the application. Spark has it in the offset
 * log, so a batch that is tried again has the same one.
 */
private[spark] object BatchTime {
  private val Special = "(now|today|yesterday|tomorrow)"
  private val Word = raw"(?is)\s*$Special\b.*".r
  private val Constant = raw"(?is).*\b(date|timestamp|timestamp_ntz|timestamp_ltz)\s*'\s*$Special\b.*".r

  def in(made: Expression, batchMs: => Long): Expression = made.transform {
    case now: CurrentTimestampLike => literal(batchMs, now.dataType, None)
    case local: LocalTimestamp => literal(batchMs, local.dataType, local.timeZoneId)
    case today: CurrentDate => literal(batchMs, today.dataType, today.timeZoneId)
  }

  private def literal(batchMs: Long, its: DataType, zone: Option[String]): Literal =
    CurrentBatchTimestamp(batchMs, its, zone.orElse(Some("UTC"))).toLiteral

  /** Throws IllegalArgumentException for a time that Spark takes from the clock when it plans. */
  def check(made: Expression, text: String): Unit = {
    val found = made.collectFirst {
      case time: CurrentTime => time.sql
      case cast @ Cast(word, DateType | TimestampType | TimestampNTZType, _, _) if special(word) => cast.sql
    }
    found.orElse(Some(text).filter(Constant.matches)).foreach { what =>
      throw new IllegalArgumentException(
        s"$what takes the time from the clock, and a batch that is tried again would differ: use " +
          "current_timestamp(), current_date() or localtimestamp(), which are the time of the batch")
    }
  }

  private def special(word: Expression): Boolean = word.dataType.isInstanceOf[StringType] && word.foldable &&
    Option(word.eval()).exists(its => Word.matches(its.toString))
}
