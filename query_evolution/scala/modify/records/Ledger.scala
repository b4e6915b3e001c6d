package rhino.spark.modify.records

/**
 * What the folder `modifications` of a query checkpoint says. The rules are here only: the driver writes what it has
 * decided, and commands read that (query_evolution/modify/ledger.py).
 *
 * @param records  by number. Immutable.
 * @param accepted the numbers of the records that a driver has checked and accepted
 * @param bindings by batch, the records that came in force with it. Immutable, written before that batch is planned.
 * @param returned by batch of a binding that has been given up, the batch from which it does not count any more
 * @param judged   by committed batch, the canaries that its figures count for, and how many batches each has left
 */
private[spark] case class Ledger(
    records: Map[Long, Modification] = Map.empty, accepted: Set[Long] = Set.empty,
    bindings: Map[Long, Seq[Long]] = Map.empty, returned: Map[Long, Long] = Map.empty,
    judged: Map[Long, Map[Long, Int]] = Map.empty) {

  /** Accepted records that no batch has bound yet, in order. */
  def ready: Seq[Long] = {
    val bound = bindings.values.flatten.toSet
    accepted.filterNot(bound).filter(records.get(_).exists(!_.dryRun)).toSeq.sorted
  }

  /** What a batch is planned with: of each slot the newest record that is bound to it, or to a batch before it. */
  def inForce(batch: Long): Seq[Modification] = {
    val numbers = bindings.filter { case (at, _) => counts(at, batch) }.values.flatten
    newest(numbers.map(record))
  }

  private def newest(found: Iterable[Modification]): Seq[Modification] = {
    val slots = found.toSeq.sortBy(_.number).map(record => record.slot -> record).toMap
    slots.values.filterNot(_.removes).toSeq.sortBy(_.number)
  }

  private def record(number: Long): Modification = records.getOrElse(number, throw new IllegalStateException(
    s"modification $number is bound to a batch, and its file modifications/records/$number is missing in the " +
      "checkpoint: restore it, for example from a backup"))

  /** `fresh`: no run has planned the batch before, or the record was accepted before the batch began. */
  def bound(batch: Long, fresh: Long => Boolean): Option[(Ledger, Seq[Long])] = {
    val numbers = if (bindings.contains(batch)) Nil else ready.filter(fresh)
    if (numbers.isEmpty) None else Some((copy(bindings = bindings + (batch -> numbers)), numbers))
  }

  /** All records that these take the place of, when they are bound. */
  def replaced(numbers: Seq[Long]): Seq[Long] =
    for {
      former <- bindings.values.flatten.toSeq.sorted
      if numbers.exists(number => former < number && record(former).slot == record(number).slot)
    } yield former

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
      if left(its.number, canary) > 0
    } yield bound -> its

  /** How many batches of a canary are not judged yet. */
  def left(number: Long, canary: Canary): Int =
    judged.values.flatMap(_.get(number)).minOption.getOrElse(canary.batches)
}

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
