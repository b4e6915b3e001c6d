package rhino.spark.modify

/**
 * What the folder `modifications` of a query checkpoint says. The same rules are in spark_connector/modify/ledger.py.
 *
 * @param records  by number. Immutable.
 * @param accepted the numbers of the records that a driver has checked and accepted
 * @param bindings by batch, the records that came in force with it. Immutable, written before that batch is planned.
 * @param returned the batches that have failed, and whose bindings therefore do not count any more
 */
private[spark] case class Ledger(
    records: Map[Long, Modification] = Map.empty, accepted: Set[Long] = Set.empty,
    bindings: Map[Long, Seq[Long]] = Map.empty, returned: Set[Long] = Set.empty) {

  /** Accepted records that no batch has bound yet, in order. */
  def ready: Seq[Long] = {
    val bound = bindings.values.flatten.toSet
    accepted.filterNot(bound).filter(records.get(_).exists(!_.dryRun)).toSeq.sorted
  }

  /** What a batch is planned with: of each slot the newest record that is bound to it, or to a batch before it. */
  def inForce(batch: Long): Seq[Modification] = {
    val numbers = bindings.filter { case (at, _) => at <= batch && !returned(at) }.values.flatten.toSeq.sorted
    val newest = numbers.map(number => records.getOrElse(number, missing(number)))
      .foldLeft(Map.empty[(String, String), Modification])((slots, record) => slots + (record.slot -> record))
    newest.values.filterNot(_.removes).toSeq.sortBy(_.number)
  }

  private def missing(number: Long): Nothing = throw new IllegalStateException(
    s"modification $number is bound to a batch, and its file modifications/records/$number is missing in the " +
      "checkpoint: restore it, for example from a backup")

  /** `fresh`: no run has planned the batch before, or the record was accepted before the batch began. */
  def bound(batch: Long, fresh: Long => Boolean): Option[(Ledger, Seq[Long])] = {
    val numbers = if (bindings.contains(batch)) Nil else ready.filter(fresh)
    if (numbers.isEmpty) None else Some((copy(bindings = bindings + (batch -> numbers)), numbers))
  }

  /** The newest batch whose binding may be given up, if the run that planned it has failed. */
  def failing(batch: Long): Option[Long] = Some(batch).filter(at => bindings.contains(at) && !returned(at))
}
