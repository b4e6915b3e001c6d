package rhino.spark.driver

import java.util.concurrent.LinkedBlockingQueue

import scala.collection.mutable

import org.apache.spark.Success
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter

import rhino.spark.wire.Schema.{message, Message}

/**
 * Rows and time of each virtual node of a query, from the tasks of its batches (Madsen & Zhou, section 4: load by key
 * group). Spark's progress reports them per operator only. But each task reports what it added to the metrics of its
 * plan.
 */
private[spark] class NodeWork {
  private val PlansMax = 8 // a batch's tasks are reported within a few batches
  private val StagesMax = 32 // stages with tasks that have not ended

  /** `rows` is None if the query does not track its rows. `plan`: of the batch. */
  private case class Work(rows: Option[Long], ranMs: Long, plan: Option[Map[Long, PlanCounter]])

  private val plans = mutable.Queue.empty[Map[Long, PlanCounter]]
  private val stages = mutable.LinkedHashMap.empty[(Int, TaskGroup), mutable.TreeMap[Int, Work]]
  private var complete = Map.empty[(TaskGroup, Int), Work]

  /** Call when Spark has planned a batch. */
  def planned(counters: Map[Long, PlanCounter]): Unit = {
    plans.enqueue(counters)
    if (plans.size > PlansMax) plans.dequeue()
  }

  /** Records tasks, of any query: those of other queries have counters of other plans. */
  def ended(tasks: Seq[EndedTask]): Unit = for (task <- tasks) {
    val mine = task.counters.toSeq.flatMap { case (id, value) =>
      plans.iterator.flatMap(_.get(id)).nextOption().map(_ -> value)
    }
    mine.groupBy(_._1.group).foreach { case (group, added) =>
      val rows = added.collect { case (PlanCounter(_, true), value) => value }.sum
      val plan = plansOf(task).nextOption()
      record(task, group, Work(Option.when(plan.exists(counts(_, group)))(rows), task.ranMs, plan))
    }
  }

  private def plansOf(task: EndedTask): Iterator[Map[Long, PlanCounter]] =
    plans.iterator.filter(plan => task.counters.keysIterator.exists(plan.contains))

  private def counts(plan: Map[Long, PlanCounter], group: TaskGroup): Boolean =
    plan.valuesIterator.exists(counter => counter.isRows && counter.group == group)

  /** Returns and resets the results of stages whose tasks have all ended. */
  def take(): Seq[Message] = {
    val taken = complete.toSeq.map { case ((group, partition), work) =>
      message("NodeWork", "task_group" -> group.name, "partition" -> partition, "rows" -> work.rows.getOrElse(0L),
        "rows_not_counted" -> work.rows.isEmpty, "task_s" -> work.ranMs / 1e3)
    }
    complete = Map.empty
    taken
  }

  /**
   * Under a union, a branch's partitions follow those of other branches. They get their numbers in order, once all
   * ended. A batch may run its stateful stage twice, as for a sort of its result: then both times count.
   */
  private def record(task: EndedTask, group: TaskGroup, done: Work): Unit = {
    val key = (task.stage, group)
    val ended = stages.getOrElseUpdate(key, mutable.TreeMap.empty)
    ended.put(task.partition, done)
    if (ended.size == group.partitions) {
      complete ++= ended.values.zipWithIndex.map { case (work, partition) =>
        val before = complete.get((group, partition)).filter(_.plan.exists(former => work.plan.exists(_ eq former)))
        (group, partition) -> work.copy(ranMs = work.ranMs + before.fold(0L)(_.ranMs))
      }
      stages.remove(key)
    } else if (stages.size > StagesMax) {
      stages.remove(stages.head._1)
    }
  }
}

/** A metric of a plan's stateful operator. `isRows`: it counts rows of state; else it only shows whose task it is. */
private[spark] case class PlanCounter(group: TaskGroup, isRows: Boolean)

private[spark] object PlanCounters {

  /** Spark's names of the metrics used. Every stateful task adds to the second one, even without rows. */
  val MetricNames: Set[String] = Set("number of total state rows", "number of state store instances")

  /** Spark's setting without which its RocksDB provider reports 0 rows. */
  private val TrackRows = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"

  /** Counters of a plan by the ids of their metrics. No counter is for rows if the query does not track them. */
  def of(plan: SparkPlan, taskGroups: Seq[TaskGroup]): Map[Long, PlanCounter] =
    plan.collect { case writer: StateStoreWriter => writer }.flatMap { writer =>
      for {
        info <- writer.stateInfo.toSeq
        group <- taskGroups.find(_.operators.contains(info.operatorId)).toSeq
        tracked = writer.session.sessionState.conf.getConfString(TrackRows, "true").toBoolean
        (name, isRows) <- Seq("numTotalStateRows" -> true, "numStateStoreInstances" -> false)
        if tracked || !isRows
        metric <- writer.metrics.get(name)
      } yield metric.id -> PlanCounter(group, isRows)
    }.toMap
}

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
