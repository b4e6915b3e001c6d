package rhino.spark.driver

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter

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
