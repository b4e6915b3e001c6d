package org.apache.spark.sql.execution.streaming.state

import java.util.concurrent.LinkedBlockingQueue

import scala.collection.mutable

import org.apache.spark.Success
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter

/** A task with state that has ended. `counters`: by the id of a plan's metric, what the task added to it. */
private[state] case class RhinoTask(stage: Int, partition: Int, ranMs: Long, counters: Map[Long, Long])

/** Tasks with state, as they end, of all queries of the driver. */
private[state] class RhinoTasks extends SparkListener {
  private val WaitingMax = 10000 // nobody takes them while queries cannot be followed
  private val ended = new LinkedBlockingQueue[RhinoTask](WaitingMax)

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit =
    if (event.reason == Success && event.taskMetrics != null) {
      val added = event.taskInfo.accumulables.filter(_.name.exists(RhinoWork.Metrics.contains))
      if (added.nonEmpty) {
        val counters = added.flatMap(a => a.update.collect { case value: Long => a.id -> value }).toMap
        val task = RhinoTask(event.stageId, event.taskInfo.partitionId, event.taskMetrics.executorRunTime, counters)
        while (!ended.offer(task)) ended.poll()
      }
    }

  def take(): Seq[RhinoTask] = {
    val taken = Seq.newBuilder[RhinoTask]
    Iterator.continually(ended.poll()).takeWhile(_ != null).foreach(taken += _)
    taken.result()
  }
}

/**
 * Rows and time of each virtual node of a query, from the tasks of its batches (Madsen & Zhou, section 4: load by key
 * group). Spark's progress has them per operator only; but each task says what it added to the metrics of the plan that
 * it belongs to.
 */
private[state] class RhinoWork(taskGroups: Seq[RhinoTaskGroup]) {
  import RhinoSchema._

  private val PlansMax = 8 // a batch's tasks are told of within a few batches
  private val StagesMax = 32 // of which not all tasks have ended
  private case class Counter(group: RhinoTaskGroup, rows: Boolean)
  private case class Work(rows: Long, ranMs: Long)

  private var seen: QueryExecution = _
  private val plans = mutable.Queue.empty[Map[Long, Counter]]
  private val stages = mutable.LinkedHashMap.empty[(Int, RhinoTaskGroup), mutable.TreeMap[Int, Work]]
  private var whole = Map.empty[(RhinoTaskGroup, Int), Work]

  /** `execution`: the newest of the query. Its plan is made by now if these are its tasks. */
  def ended(tasks: Seq[RhinoTask], execution: QueryExecution): Unit = {
    if (execution != null && (execution ne seen)) {
      seen = execution
      plans.enqueue(counters(execution))
      if (plans.size > PlansMax) plans.dequeue()
    }
    for (task <- tasks) {
      val mine = task.counters.toSeq.flatMap { case (id, value) => plans.iterator.flatMap(_.get(id)).nextOption().map(_ -> value) }
      mine.groupBy(_._1.group).foreach { case (group, added) =>
        note(task, group, added.collect { case (Counter(_, true), value) => value }.sum)
      }
    }
  }

  /** What is known of stages whose tasks have all ended, since the last call. */
  def take(): Seq[Message] = {
    val told = whole.toSeq.map { case ((group, partition), work) =>
      message("NodeWork", "task_group" -> group.name, "partition" -> partition, "rows" -> work.rows,
        "task_s" -> work.ranMs / 1e3)
    }
    whole = Map.empty
    told
  }

  /** Under a union the partitions of a branch have others before them: so they are told by their order, all together. */
  private def note(task: RhinoTask, group: RhinoTaskGroup, rows: Long): Unit = {
    val key = (task.stage, group)
    val ended = stages.getOrElseUpdate(key, mutable.TreeMap.empty)
    ended.put(task.partition, Work(rows, task.ranMs))
    if (ended.size == group.partitions) {
      whole ++= ended.values.zipWithIndex.map { case (work, partition) => (group, partition) -> work }
      stages.remove(key)
    } else if (stages.size > StagesMax) {
      stages.remove(stages.head._1)
    }
  }

  private def counters(execution: QueryExecution): Map[Long, Counter] =
    execution.executedPlan.collect { case writer: StateStoreWriter => writer }.flatMap { writer =>
      for {
        info <- writer.stateInfo.toSeq
        group <- taskGroups.find(_.operators.contains(info.operatorId)).toSeq
        (name, isRows) <- Seq("numTotalStateRows" -> true, "numStateStoreInstances" -> false)
        metric <- writer.metrics.get(name)
      } yield metric.id -> Counter(group, isRows)
    }.toMap
}

private[state] object RhinoWork {
  /** Spark's names of what is looked at; to the second one every task with state adds something, also without a row. */
  val Metrics = Set("number of total state rows", "number of state store instances")
}
