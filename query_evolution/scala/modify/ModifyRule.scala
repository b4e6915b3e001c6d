package rhino.spark.modify

import java.util.UUID

import scala.collection.mutable

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

import rhino.spark.driver.DriverExtension
import rhino.spark.modify.points.{Overlay, PointStrategy}
import rhino.spark.modify.records.{Failpoints, Modification}
import rhino.spark.restart.Restarts

/** The modifications of running queries, as the engine finds them. */
private[spark] class ModifyExtension extends DriverExtension {
  override def inject(extensions: SparkSessionExtensions): Unit = {
    extensions.injectPostHocResolutionRule(new ModifyRule(_))
    extensions.injectPlannerStrategy(_ => PointStrategy)
  }

  override def start(executors: () => Seq[(String, String)]): Unit = Modifications.start(executors)
  override def stop(): Unit = Modifications.stop()
}

/**
 * Plans each batch of a streaming query with the modifications that are bound to it. Spark analyses the plan of every
 * batch anew, and all tasks of a batch, retries included, have one plan.
 */
private[spark] class ModifyRule(session: SparkSession) extends Rule[LogicalPlan] {

  private val misplaced = new Misplaced // a query has a session of its own, and this rule with it

  override def apply(plan: LogicalPlan): LogicalPlan = batch(plan).fold(plan) { case (query, number) =>
    Restarts.pass(query, number) // a closed gate parks the batch before anything is decided about it
    val modifications = Modifications.at(query, number)
    def overlay =
      new Overlay(plan, modifications, session.asInstanceOf[ClassicSession], Modifications.batchMs(query, number))
    if (modifications.isEmpty) overlay.made
    else {
      val its = Failpoints.around("plan")(overlay)
      misplaced.see(number, its.misplaced).foreach { case (lost, reason) =>
        logWarning(s"query $query: $lost changes nothing: $reason")
      }
      its.made
    }
  }

  /** Query and batch, if this is the plan of a batch. That thread also analyses what its user's code makes. */
  private def batch(plan: LogicalPlan): Option[(UUID, Long)] = {
    val context = session.sparkContext
    for {
      query <- Option(context.getLocalProperty(StreamExecution.QUERY_ID_KEY))
      number <- Option(context.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY))
      if plan.isStreaming && !plan.exists(_.getClass.getSimpleName.startsWith("StreamingRelation"))
    } yield (UUID.fromString(query), number.toLong)
  }
}

/**
 * Finds modifications for which a query has no place any more. Spark may analyse several plans for one batch, such as
 * that of a file source, so a place is missing only if no plan of the batch has it.
 */
private[spark] class Misplaced {
  private var batch = Option.empty[Long]
  private var lacking = Seq.empty[(Modification, String)] // in all plans of the batch so far
  private val told = mutable.Set.empty[Long]

  /**
   * Takes what a plan of a batch has no place for, each with the reason. Returns what no plan of the batch before had
   * one for, and what was not returned before.
   */
  def see(number: Long, misplaced: Seq[(Modification, String)]): Seq[(Modification, String)] =
    if (batch.contains(number)) {
      val numbers = misplaced.map(_._1.number).toSet
      lacking = lacking.filter { case (its, _) => numbers(its.number) }
      Nil
    } else {
      val found = lacking.filter { case (its, _) => told.add(its.number) }
      batch = Some(number)
      lacking = misplaced
      found
    }
}
