package org.apache.spark.sql.execution.streaming.state

/** When to look whether a query is idle: not between the batches of a busy one, and once for every map. */
private[state] class RhinoQuiet {
  private val AfterMs = 10000L // without a batch
  private val AgainMs = 1000L // looks into the query checkpoint
  private var lookAt = in(AfterMs)
  private var told = Option.empty[(Long, Long)]

  private def in(ms: Long): Long = System.nanoTime() + ms * 1000000L

  /** A batch was logged. */
  def broken(): Unit = { lookAt = in(AfterMs); told = None }

  /** The manager may not know what it was told. */
  def forget(): Unit = told = None

  /** Epoch of `map`, a (generation, epoch), when it is time, `idle` holds and it has not been told yet. */
  def look(map: Option[(Long, Long)])(idle: => Boolean): Option[Long] =
    if (map.isEmpty || map == told || System.nanoTime() - lookAt < 0) None
    else if (idle) { told = map; map.map(_._2) }
    else { lookAt = in(AgainMs); None }
}
