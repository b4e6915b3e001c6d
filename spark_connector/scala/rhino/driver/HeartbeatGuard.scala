package rhino.spark.driver

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorMetricsUpdate, SparkListenerExecutorRemoved}
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/** Keeps Spark from dropping executors while most are silent at once. Spark looks for silent ones every second. */
private[driver] class HeartbeatGuard(context: SparkContext, timeoutMs: Long) extends SparkListener with Logging {
  private val LookMs = 500L
  private val FailurePauseMs = 10000L
  private val executors = new SilentExecutors(timeoutMs, () => System.nanoTime() / 1000000L)
  private var sparing = false // used by the guard's thread only
  @volatile private var stopped = false
  private val thread = new Thread(() => guard(), "rhino-heartbeats")
  thread.setDaemon(true)

  override def onExecutorAdded(event: SparkListenerExecutorAdded): Unit = executors.added(event.executorId)
  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit = executors.removed(event.executorId)
  override def onExecutorMetricsUpdate(event: SparkListenerExecutorMetricsUpdate): Unit =
    executors.heardOf(event.execId)

  def start(): Unit = thread.start()
  def stop(): Unit = { stopped = true; thread.interrupt() }

  private def guard(): Unit =
    while (!stopped) {
      try {
        look()
        Thread.sleep(LookMs)
      } catch {
        case _: InterruptedException => stopped = true
        case NonFatal(error) =>
          logWarning("Rhino could not look at the heartbeats of executors; trying again", error)
          Thread.sleep(FailurePauseMs)
      }
    }

  private def look(): Unit = {
    val spared = executors.spared()
    if (spared.nonEmpty && !sparing) logWarning(
      s"${spared.size} executors, which are most, have sent no heartbeat for ${timeoutMs / 2000} s: the driver or " +
        s"their machines have too little time. Spark does not drop them before ${SilentExecutors.UsualMs / 1000} s")
    sparing = spared.nonEmpty
    spared.foreach(Internals.heardOf(context, _))
  }
}

private[driver] object HeartbeatGuard {

  /** None if Spark waits as long as it usually does. */
  def of(context: SparkContext, conf: SparkConf): Option[HeartbeatGuard] = {
    val timeoutMs = conf.getTimeAsMs(ExecutorListener.TimeoutKey, s"${SilentExecutors.UsualMs}ms")
    Option.when(timeoutMs < SilentExecutors.UsualMs)(new HeartbeatGuard(context, timeoutMs))
  }
}

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
