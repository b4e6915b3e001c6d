package rhino.spark.driver

import scala.collection.mutable

/**
 * Which executors have sent no heartbeat for a while. If most are silent at once, the driver or all machines have too
 * little time. Then it helps nobody that Spark drops them: the next ones would be silent, too.
 *
 * @param timeoutMs after which Spark drops a silent executor
 * @param nowMs     a monotonic clock, in milliseconds
 */
private[spark] class SilentExecutors(timeoutMs: Long, nowMs: () => Long) {
  private val heard = mutable.Map.empty[String, Long] // by executor id

  def added(id: String): Unit = synchronized(heard.put(id, nowMs()))
  def removed(id: String): Unit = synchronized(heard.remove(id))
  def heardOf(id: String): Unit = synchronized(if (heard.contains(id)) heard.put(id, nowMs()))

  /**
   * The executors that Spark should not drop now: all silent ones, if they are most. Spark's usual time-out is the
   * limit.
   */
  def spared(): Seq[String] = synchronized {
    val silent = heard.toSeq.filter { case (_, at) => nowMs() - at >= timeoutMs / 2 }
    if (silent.size * 2 <= heard.size) Nil
    else silent.collect { case (id, at) if nowMs() - at < SilentExecutors.UsualMs => id }
  }
}

private[spark] object SilentExecutors {
  val UsualMs = 120000L // Spark's default
}
