package rhino.spark.modify.checks

import java.util.UUID
import java.util.concurrent.{Executors, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.control.NonFatal

import org.apache.spark.{FutureAction, SparkContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/** Jobs of a check. They must not keep the executors from the query for long. */
private[spark] object LimitedJob {
  private val TimeoutS = 60L

  /** Jobs of `act` are cancelled after a minute, also those that it starts later. Throws IllegalArgumentException. */
  def run[T](context: SparkContext, what: String)(act: => T): T = {
    val group = s"rhino-modification-${UUID.randomUUID()}"
    context.setJobGroup(group, what, interruptOnCancel = true)
    try within(TimeoutS * 1000)(context.cancelJobGroupAndFutureJobs(group))(act)
    finally context.clearJobGroup()
  }

  /** An error of `act` after it was cancelled says nothing about what it checks. */
  def within[T](limitMs: Long)(cancel: => Unit)(act: => T): T = {
    val timer = Executors.newSingleThreadScheduledExecutor()
    val late = new AtomicBoolean
    timer.schedule((() => { late.set(true); cancel }): Runnable, limitMs, TimeUnit.MILLISECONDS)
    try act
    catch {
      case NonFatal(error) if late.get => throw new IllegalArgumentException(
          s"its check did not end within ${limitMs / 1000.0} s, for example because no executor had a free slot. " +
            "Nothing is known against it: the same request may pass later", error)
    } finally timer.shutdownNow()
  }

  /** A job on the executors: each task answers with what is wrong, or "". `refusal`: the reason, from an answer. */
  case class Check(job: FutureAction[Seq[String]], refusal: String => String)

  /**
   * Does `meanwhile` while the jobs run: they may have to wait for a free slot. An error of `meanwhile` comes first,
   * and ends the jobs. `answer`: that of a job with this error. Throws IllegalArgumentException with the first refusal.
   */
  def settle(checks: Seq[Check], answer: Throwable => String)(meanwhile: => Unit): Unit =
    try {
      meanwhile
      checks.foreach { its =>
        val answers =
          try Await.result(its.job, Duration.Inf)
          catch { case NonFatal(error) => throw new IllegalArgumentException(its.refusal(answer(error)), error) }
        answers.find(_.nonEmpty).foreach(wrong => throw new IllegalArgumentException(its.refusal(wrong)))
      }
    } catch { case error: Throwable => checks.foreach(_.job.cancel()); throw error }

  /**
   * A partition for each executor, by host and id, or one without any. Their tasks must not fail: a failed one would be
   * tried again, and speak against its executor.
   */
  def onEach(executors: Seq[(String, String)], context: SparkContext): RDD[String] = {
    val places = executors.map { case (host, id) => id -> Seq(Internals.executorPlace(host, id)) }
    if (places.isEmpty) context.makeRDD(Seq("driver"), 1) else context.makeRDD(places)
  }
}
