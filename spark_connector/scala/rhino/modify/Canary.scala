package rhino.spark.modify

/**
 * For how long a new modification is on trial, and what ends that at once.
 *
 * @param batches    how many batches are judged
 * @param maxBatchMs the longest time of a batch, which does not hold for the first batch of a run
 * @param point      where rows are counted, by the metric `rows` of `.observe`
 * @param minRows    the least rows of a batch at the point
 * @param maxRows    the most
 */
private[spark] case class Canary(
    batches: Int, maxBatchMs: Option[Long], point: String, minRows: Option[Long], maxRows: Option[Long]) {

  def countsRows: Boolean = minRows.nonEmpty || maxRows.nonEmpty

  /**
   * Why the state before the modification would be gone before its canary ends: a query keeps that of `kept` batches.
   */
  def tooLong(kept: Int): Option[String] =
    if (batches < kept) None
    else Some(s"a canary of $batches batches: the query keeps the state of $kept batches, and that from before the " +
      s"canary must be kept until its end. Give at most ${kept - 1}, or start the query with another " +
      "spark.sql.streaming.minBatchesToRetain")

  /** The limit that a batch has broken, in words. */
  def broken(figures: Figures): Option[String] = {
    val rows = figures.rows.get(point)
    val slow = for (most <- maxBatchMs if figures.timed && figures.batchMs > most)
      yield s"it took ${figures.batchMs} ms, and $most are allowed"
    val few = for (least <- minRows; found <- rows if found < least)
      yield s"$found rows passed $point, and $least are the least"
    val many = for (most <- maxRows; found <- rows if found > most)
      yield s"$found rows passed $point, and $most are allowed"
    slow.orElse(few).orElse(many)
  }
}

/**
 * What a committed batch shows.
 *
 * @param batchMs from its trigger to its commit
 * @param timed   whether its time is comparable. The first batch of a run loads state, and starts workers.
 * @param rows    that passed a point, by the name of the point
 */
private[spark] case class Figures(batchMs: Long, timed: Boolean, rows: Map[String, Long])

private[spark] object Canary {
  /** The name of the metric of a point that counts its rows. */
  val Rows = "rows"
}
