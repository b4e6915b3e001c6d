package rhino.spark.driver

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorMetricsUpdate, SparkListenerExecutorRemoved}
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/**
 * Drops executors whose node has vanished without a word. Spark alone waits for 120 s, because it cannot tell such a
 * node from one that has too little time.
 *
 * @param standing what the manager says of the worker of an executor
 */
private[driver] class HeartbeatGuard(context: SparkContext, silentMs: Long, standing: String => Standing)
  extends SparkListener with Logging {
  private val LookMs = 500L
  private val FailurePauseMs = 10000L
  private val executors = new SilentExecutors(silentMs, () => System.nanoTime() / 1000000L)
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
        executors.gone(standing).foreach(drop)
        Thread.sleep(LookMs)
      } catch {
        case _: InterruptedException => stopped = true
        case NonFatal(error) =>
          logWarning("Rhino could not look at the heartbeats of executors; trying again", error)
          Thread.sleep(FailurePauseMs)
      }
    }

  private def drop(gone: SilentExecutor): Unit = {
    val why = s"no heartbeat for ${gone.silentMs} ms, and ${gone.standing.text}"
    logWarning(s"Rhino drops executor ${gone.id}: $why")
    Internals.drop(context, gone.id, why)
  }
}

private[driver] object HeartbeatGuard {
  private val SilentMs = 3000L // longer than the pauses of most JVMs; the manager's word is needed, too
  private val Beats = 3

  def apply(context: SparkContext, conf: SparkConf, standing: String => Standing): HeartbeatGuard = {
    val beatMs = conf.getTimeAsMs("spark.executor.heartbeatInterval", "10s")
    new HeartbeatGuard(context, math.max(SilentMs, Beats * beatMs), standing)
  }
}

/** What is known of the worker of an executor. `text`: for people. */
private[spark] sealed abstract class Standing(val text: String)
private[spark] object Standing {
  /** The manager hears of the worker, or the executor has reported none. */
  case object Usual extends Standing("its worker lives")
  case object Lost extends Standing("its worker is lost, too")
  /** No manager is there to ask. */
  case object Unknown extends Standing("no manager is there to ask about its worker")
}

private[spark] case class SilentExecutor(id: String, silentMs: Long, standing: Standing)

/**
 * Which executors are gone. Silence alone proves nothing: the manager must have lost the worker, too. If most
 * executors are silent at once, the driver or all machines have too little time, and none is gone.
 *
 * @param silentMs time without a heartbeat after which an executor is silent
 * @param nowMs    a monotonic clock, in milliseconds
 */
private[spark] class SilentExecutors(silentMs: Long, nowMs: () => Long) {
  import SilentExecutors.{AloneMs, LateMs}
  private val heard = mutable.Map.empty[String, Long] // by executor id
  private var lookedAt = nowMs()

  def added(id: String): Unit = synchronized(heard.put(id, nowMs()))
  def removed(id: String): Unit = synchronized(heard.remove(id))
  def heardOf(id: String): Unit = synchronized(if (heard.contains(id)) heard.put(id, nowMs()))

  /** Call it often: after a pause of this process, all executors count as heard of. So do those that are returned. */
  def gone(standing: String => Standing): Seq[SilentExecutor] = synchronized {
    val now = nowMs()
    if (now - lookedAt > LateMs) heard.keys.toSeq.foreach(heard.put(_, now))
    lookedAt = now
    val silent = heard.toSeq.collect { case (id, at) if now - at >= silentMs => (id, now - at) }
    if (silent.size * 2 > heard.size) Nil
    else {
      val found = silent.map { case (id, ms) => SilentExecutor(id, ms, standing(id)) }.filter { its =>
        its.standing == Standing.Lost || (its.standing == Standing.Unknown && its.silentMs >= AloneMs)
      }
      found.foreach(its => heard.put(its.id, now))
      found.sortBy(_.id)
    }
  }
}

private[spark] object SilentExecutors {
  private val AloneMs = 30000L // without the manager's word
  private val LateMs = 2000L // between two looks
}
