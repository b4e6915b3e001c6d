package org.apache.spark.sql.execution.streaming.state

/** When to look whether a query is idle: not between the batches of a busy one, at once for a new map, then ever more
  * rarely, and not again once it is told.
  */
private[state] class RhinoQuiet {
  private val AfterMs = 10000L // without a batch
  private val FirstPauseMs = 1000L // between looks into the query checkpoint
  private val PauseMaxMs = 16000L
  private var quietAt = in(AfterMs)
  private var againAt = in(0)
  private var pauseMs = FirstPauseMs
  private var map = Option.empty[(Long, Long)]
  private var told = false

  private def in(ms: Long): Long = System.nanoTime() + ms * 1000000L
  private def over(at: Long): Boolean = System.nanoTime() - at >= 0

  /** A batch was logged. */
  def broken(): Unit = { quietAt = in(AfterMs); forget() }

  /** The manager does not know any more what it was told. */
  def forget(): Unit = { told = false; pauseMs = FirstPauseMs; againAt = in(0) }

  /** Epoch of `newest`, a (generation, epoch), when it is time, `idle` holds and it has not been told yet. */
  def look(newest: Option[(Long, Long)])(idle: => Boolean): Option[Long] = {
    if (newest != map) { map = newest; forget() }
    if (told || map.isEmpty || !over(quietAt) || !over(againAt)) None
    else {
      againAt = in(pauseMs)
      pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      told = idle
      if (told) map.map(_._2) else None
    }
  }
}
