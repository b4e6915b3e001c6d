package rhino.spark.modify

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, BindReferences, Expression, SortOrder}
import org.apache.spark.sql.catalyst.optimizer.BuildRight
import org.apache.spark.sql.catalyst.plans.{JoinType, LeftExistence, LeftOuter}
import org.apache.spark.sql.catalyst.plans.logical.{BinaryNode, LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.catalyst.plans.physical.{BroadcastPartitioning, Distribution, Partitioning}
import org.apache.spark.sql.execution.{BinaryExecNode, LeafExecNode, SparkPlan}
import org.apache.spark.sql.execution.joins.{BroadcastHashJoinExec, HashedRelationBroadcastMode, HashJoin}

/**
 * The rows of a point with those of a table that have the same keys. Unlike Spark's `Join`, it says nothing about them
 * to the optimizer, and nothing of it moves.
 */
private[spark] case class PointJoin(
    kind: JoinType, leftKeys: Seq[Expression], rightKeys: Seq[Expression], left: LogicalPlan, right: LogicalPlan)
  extends BinaryNode {

  override def output: Seq[Attribute] = kind match {
    case LeftExistence(_) => left.output
    case LeftOuter => left.output ++ right.output.map(_.withNullability(true))
    case _ => left.output ++ right.output
  }

  /** Columns of the table are not pruned: executors have it as it is. */
  @transient override lazy val references: AttributeSet = AttributeSet(leftKeys ++ rightKeys) ++ right.outputSet

  override protected def withNewChildrenInternal(newLeft: LogicalPlan, newRight: LogicalPlan): LogicalPlan =
    copy(left = newLeft, right = newRight)
}

/** All rows of a table that is joined at a point. */
private[spark] case class PointTable(table: StaticTable, output: Seq[Attribute]) extends LeafNode {
  override def computeStats(): Statistics = Statistics(table.rows.bytes)
}

/** Executors get it for these keys, unless they have it from an earlier batch. */
private[modify] case class PointTableExec(
    @transient table: StaticTable, output: Seq[Attribute], mode: HashedRelationBroadcastMode) extends LeafExecNode {

  @transient private lazy val sent = table.broadcast(mode, sparkContext) // as long as the plan

  override def outputPartitioning: Partitioning = BroadcastPartitioning(mode)
  override def doExecuteBroadcast[T](): Broadcast[T] = sent.relation.asInstanceOf[Broadcast[T]]
  override protected def doExecute(): RDD[InternalRow] = throw new UnsupportedOperationException("only for joins")
}

/** Spark's join with a table that is broadcast. The Java code of the operators around it stays as it is. */
private[spark] case class PointJoinExec(
    kind: JoinType, leftKeys: Seq[Expression], rightKeys: Seq[Expression], left: SparkPlan, right: SparkPlan)
  extends BinaryExecNode {

  @transient private lazy val join =
    BroadcastHashJoinExec(leftKeys, rightKeys, kind, BuildRight, condition = None, left, right)

  override lazy val metrics = join.metrics
  override def output: Seq[Attribute] = join.output
  override def outputPartitioning: Partitioning = left.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = left.outputOrdering
  override def requiredChildDistribution: Seq[Distribution] = join.requiredChildDistribution
  override protected def doExecute(): RDD[InternalRow] = join.execute()

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): SparkPlan =
    copy(left = newLeft, right = newRight)
}

private[modify] object PointJoinExec {
  def of(its: PointJoin, table: PointTable, left: SparkPlan): PointJoinExec = {
    val keys = BindReferences.bindReferences(HashJoin.rewriteKeyExpr(its.rightKeys), table.output)
    val right = PointTableExec(table.table, table.output, HashedRelationBroadcastMode(keys))
    PointJoinExec(its.kind, its.leftKeys, its.rightKeys, left, right)
  }
}
