package rhino.spark.modify

import scala.collection.mutable

/**
 * Finds modifications for which a query has no place any more. Spark may analyse several plans for one batch, such as
 * that of a file source, so a place is missing only if no plan of the batch has it.
 */
private[spark] class Misplaced {
  private var batch = Option.empty[Long]
  private var lacking = Seq.empty[Modification] // in all plans of the batch so far
  private val told = mutable.Set.empty[Long]

  /**
   * Takes what a plan of a batch has no place for. Returns what no plan of the batch before had one for, and what was
   * not returned before.
   */
  def see(number: Long, misplaced: Seq[Modification]): Seq[Modification] =
    if (batch.contains(number)) {
      lacking = lacking.filter(its => misplaced.exists(_.number == its.number))
      Nil
    } else {
      val found = lacking.filter(its => told.add(its.number))
      batch = Some(number)
      lacking = misplaced
      found
    }
}
