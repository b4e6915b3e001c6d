package rhino.spark.driver

/**
 * Decides when to check whether a query is idle. It does not check between the batches of a busy query. For a new map
 * it checks at once, then at growing intervals, and no more after the query was reported as idle.
 *
 * @param nowNs a monotonic clock, in nanoseconds
 */
private[spark] class IdleCheck(nowNs: () => Long) {
  private val AfterMs = 10000L // time without a batch
  private val FirstPauseMs = 1000L // between checks, which read the query checkpoint
  private val PauseMaxMs = 16000L
  private var idleAt = in(AfterMs) // at the earliest
  private var checkAt = in(0)
  private var pauseMs = FirstPauseMs
  private var map = Option.empty[(Long, Long)]
  private var reported = false

  private def in(ms: Long): Long = nowNs() + ms * 1000000L
  private def isOver(at: Long): Boolean = nowNs() - at >= 0

  def batchLogged(): Unit = { idleAt = in(AfterMs); reset() }

  /** Forgets the report, because the manager may have lost it. */
  def reset(): Unit = { reported = false; pauseMs = FirstPauseMs; checkAt = in(0) }

  /**
   * Returns the epoch of `newest`, a (generation, epoch), if a check is due, `idle` is true and it was not reported
   * yet. `idle` is asked only if a check is due.
   */
  def check(newest: Option[(Long, Long)])(idle: => Boolean): Option[Long] = {
    if (newest != map) { map = newest; reset() }
    if (reported || map.isEmpty || !isOver(idleAt) || !isOver(checkAt)) None
    else {
      checkAt = in(pauseMs)
      pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      reported = idle
      if (reported) map.map(_._2) else None
    }
  }
}
