package rhino.spark.modify

import java.util.UUID
import java.util.concurrent.{Executors, TimeUnit}

import org.apache.spark.SparkContext

/** Jobs of a check. They must not keep the executors from the query for long. */
private[modify] object LimitedJob {
  private val TimeoutS = 60L

  /** Jobs that `act` starts are cancelled after a minute. */
  def run[T](context: SparkContext, what: String)(act: => T): T = {
    val group = s"rhino-modification-${UUID.randomUUID()}"
    val timer = Executors.newSingleThreadScheduledExecutor()
    context.setJobGroup(group, what, interruptOnCancel = true)
    timer.schedule((() => context.cancelJobGroup(group)): Runnable, TimeoutS, TimeUnit.SECONDS)
    try act
    finally {
      timer.shutdownNow()
      context.clearJobGroup()
    }
  }
}
