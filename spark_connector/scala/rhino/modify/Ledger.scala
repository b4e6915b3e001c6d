package rhino.spark.modify

/**
 * What the folder `modifications` of a query checkpoint says. The same rules are in query_evolution/modify/ledger.py.
 *
 * @param records  by number. Immutable.
 * @param accepted the numbers of the records that a driver has checked and accepted
 * @param bindings by batch, the records that came in force with it. Immutable, written before that batch is planned.
 * @param returned by batch of a binding that has been given up, the batch from which it does not count any more
 * @param judged   the batches of canaries that kept the limits
 */
private[spark] case class Ledger(
    records: Map[Long, Modification] = Map.empty, accepted: Set[Long] = Set.empty,
    bindings: Map[Long, Seq[Long]] = Map.empty, returned: Map[Long, Long] = Map.empty,
    judged: Set[Long] = Set.empty) {

  /** Accepted records that no batch has bound yet, in order. */
  def ready: Seq[Long] = {
    val bound = bindings.values.flatten.toSet
    accepted.filterNot(bound).filter(records.get(_).exists(!_.dryRun)).toSeq.sorted
  }

  /** What a batch is planned with: of each slot the newest record that is bound to it, or to a batch before it. */
  def inForce(batch: Long): Seq[Modification] = {
    val numbers = bindings.filter { case (at, _) => counts(at, batch) }.values.flatten
    newest(numbers.map(number => records.getOrElse(number, missing(number))))
  }

  private def newest(found: Iterable[Modification]): Seq[Modification] = {
    val slots = found.toSeq.sortBy(_.number).map(record => record.slot -> record).toMap
    slots.values.filterNot(_.removes).toSeq.sortBy(_.number)
  }

  private def missing(number: Long): Nothing = throw new IllegalStateException(
    s"modification $number is bound to a batch, and its file modifications/records/$number is missing in the " +
      "checkpoint: restore it, for example from a backup")

  /** `fresh`: no run has planned the batch before, or the record was accepted before the batch began. */
  def bound(batch: Long, fresh: Long => Boolean): Option[(Ledger, Seq[Long])] = {
    val numbers = if (bindings.contains(batch)) Nil else ready.filter(fresh)
    if (numbers.isEmpty) None else Some((copy(bindings = bindings + (batch -> numbers)), numbers))
  }

  private def counts(bound: Long, batch: Long): Boolean =
    bound <= batch && returned.get(bound).forall(_ > batch)

  /**
   * The binding that is given up if this batch fails: the one that came with it, or else the newest one that is on
   * trial.
   */
  def failing(batch: Long): Option[Long] =
    if (bindings.contains(batch) && counts(batch, batch)) Some(batch) else trials(batch).map(_._1).maxOption

  /** The modifications in force at this batch whose canary still runs, each with the batch of its binding. */
  def trials(batch: Long): Seq[(Long, Modification)] =
    for {
      its <- inForce(batch)
      canary <- its.canary.toSeq
      bound <- bindings.collectFirst { case (at, numbers) if numbers.contains(its.number) => at }
      if judged.count(_ >= bound) < canary.batches
    } yield bound -> its
}
