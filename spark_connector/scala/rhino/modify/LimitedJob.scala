package rhino.spark.modify

import java.util.UUID
import java.util.concurrent.{Executors, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.SparkContext

/** Jobs of a check. They must not keep the executors from the query for long. */
private[spark] object LimitedJob {
  private val TimeoutS = 60L

  /** Jobs that `act` starts are cancelled after a minute. Then it throws IllegalArgumentException. */
  def run[T](context: SparkContext, what: String)(act: => T): T = {
    val group = s"rhino-modification-${UUID.randomUUID()}"
    context.setJobGroup(group, what, interruptOnCancel = true)
    try within(TimeoutS * 1000)(context.cancelJobGroup(group))(act)
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
}
