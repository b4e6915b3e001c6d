package rhino.spark

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StatefulOperatorStateInfo}
import org.apache.spark.sql.execution.streaming.state.StateSchemaValidationResult

/** Plans without data and without a session: only their shape matters. */
object Plans {
  val scan: SparkPlan = Scan()

  def stateful(operator: Long, child: SparkPlan, partitions: Int = 2): SparkPlan = {
    val info = StatefulOperatorStateInfo("file:/ckpt/q/state", UUID.randomUUID(), operator, 0L, partitions, None)
    Stateful(Some(info), child)
  }

  def exchange(child: SparkPlan): SparkPlan = ShuffleExchangeExec(SinglePartition, child)

  private case class Scan() extends LeafExecNode {
    override def output: Seq[Attribute] = Nil
    override protected def doExecute(): RDD[InternalRow] = throw new UnsupportedOperationException
  }

  private case class Stateful(stateInfo: Option[StatefulOperatorStateInfo], child: SparkPlan)
    extends UnaryExecNode with StatefulOperator {
    override def output: Seq[Attribute] = child.output
    override protected def doExecute(): RDD[InternalRow] = throw new UnsupportedOperationException
    override def validateAndMaybeEvolveStateSchema(
        hadoopConf: Configuration, batchId: Long, stateSchemaVersion: Int): List[StateSchemaValidationResult] = Nil
    override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
  }
}
