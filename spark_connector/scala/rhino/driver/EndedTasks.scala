package rhino.spark.driver

import java.util.concurrent.LinkedBlockingQueue

import org.apache.spark.Success
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}

/** A stateful task that has ended. `counters`: by id of a plan metric, the amount that the task added. */
private[spark] case class EndedTask(stage: Int, partition: Int, ranMs: Long, counters: Map[Long, Long])

/** Collects the ended stateful tasks of all queries of the driver. */
private[spark] class EndedTasks extends SparkListener {
  private val WaitingMax = 10000 // bounded: they are not taken while queries cannot be followed
  private val ended = new LinkedBlockingQueue[EndedTask](WaitingMax)

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit =
    if (event.reason == Success && event.taskMetrics != null) {
      val added = event.taskInfo.accumulables.filter(_.name.exists(PlanCounters.MetricNames.contains))
      if (added.nonEmpty) {
        val counters = added.flatMap(a => a.update.collect { case value: Long => a.id -> value }).toMap
        val task = EndedTask(event.stageId, event.taskInfo.partitionId, event.taskMetrics.executorRunTime, counters)
        while (!ended.offer(task)) ended.poll()
      }
    }

  /** Returns and removes all. */
  def take(): Seq[EndedTask] = {
    val taken = Seq.newBuilder[EndedTask]
    Iterator.continually(ended.poll()).takeWhile(_ != null).foreach(taken += _)
    taken.result()
  }
}
