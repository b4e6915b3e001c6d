package rhino.spark.modify

import java.util.UUID

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

import rhino.spark.restart.Restarts

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
