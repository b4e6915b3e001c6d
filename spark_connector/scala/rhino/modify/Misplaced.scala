package rhino.spark.modify

import scala.collection.mutable

/**
 * Finds modifications for which a query has no place any more. Spark may analyse several plans for one batch, such as
 * that of a file source, so a place is missing only if no plan of the batch has it.
 */
private[spark] class Misplaced {
  private var batch = Option.empty[Long]
  private var lacking = Seq.empty[(Modification, String)] // in all plans of the batch so far
  private val told = mutable.Set.empty[Long]

  /**
   * Takes what a plan of a batch has no place for, each with the reason. Returns what no plan of the batch before had
   * one for, and what was not returned before.
   */
  def see(number: Long, misplaced: Seq[(Modification, String)]): Seq[(Modification, String)] =
    if (batch.contains(number)) {
      val numbers = misplaced.map(_._1.number).toSet
      lacking = lacking.filter { case (its, _) => numbers(its.number) }
      Nil
    } else {
      val found = lacking.filter { case (its, _) => told.add(its.number) }
      batch = Some(number)
      lacking = misplaced
      found
    }
}
