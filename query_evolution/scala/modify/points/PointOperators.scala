package rhino.spark.modify.points

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeMap, AttributeSet, BindReferences, Expression, Predicate, SortOrder, UnsafeProjection}
import org.apache.spark.sql.catalyst.optimizer.BuildRight
import org.apache.spark.sql.catalyst.plans.{JoinType, LeftExistence, LeftOuter}
import org.apache.spark.sql.catalyst.plans.logical.{BinaryNode, LeafNode, LogicalPlan, Project, Statistics, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.{BroadcastPartitioning, Distribution, Partitioning, UnknownPartitioning}
import org.apache.spark.sql.classic.Strategy
import org.apache.spark.sql.execution.{BinaryExecNode, LeafExecNode, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.joins.{BroadcastHashJoinExec, HashedRelationBroadcastMode, HashJoin}
import org.apache.spark.sql.execution.metric.SQLMetrics

import rhino.spark.modify.records.StaticTable

/**
 * Keeps the rows of a point for which the condition is true. Unlike Spark's `Filter`, it says nothing about them to the
 * optimizer and does not move. From a filter on the key of a join, Spark would infer one for the other input of the
 * join: rows that its state lacks when this filter is removed.
 */
private[spark] case class PointFilter(condition: Expression, child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}

/** The code of its condition is its own, so the Java code of the operators around it stays as it is. */
private[spark] case class PointFilterExec(condition: Expression, child: SparkPlan) extends UnaryExecNode {
  override lazy val metrics = Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val (its, columns, count) = (condition, child.output, longMetric("numOutputRows"))
    child.execute().mapPartitionsWithIndex(
      (partition, rows) => {
        val predicate = Predicate.create(its, columns)
        predicate.initialize(partition)
        rows.filter { row =>
          val passes = predicate.eval(row)
          if (passes) count += 1
          passes
        }
      },
      preservesPartitioning = true)
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}

/**
 * Gives columns of a point other values. Unlike Spark's `Project`, it says nothing about them to the optimizer, and
 * the other columns pass without being named here: so those that nobody needs are pruned as they were without it.
 *
 * @param former columns that do not come out
 * @param values what comes out instead, in the same order, as the columns `made`
 */
private[spark] case class PointColumns(
    former: Seq[Attribute], values: Seq[Expression], made: Seq[Attribute], child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = PointColumns.replaced(child.output, former, made)
  override def producedAttributes: AttributeSet = AttributeSet(made)
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}

private[spark] object PointColumns {
  def replaced[E >: Attribute](columns: Seq[Attribute], former: Seq[Attribute], by: Seq[E]): Seq[E] = {
    val others = former.map(_.exprId).zip(by).toMap
    columns.map(column => others.getOrElse(column.exprId, column))
  }
}

/**
 * The code of its values is its own, so the Java code of the operators around it stays as it is.
 *
 * @param values one for each column of the output, from the columns of the child
 */
private[spark] case class PointColumnsExec(values: Seq[Expression], output: Seq[Attribute], child: SparkPlan)
  extends UnaryExecNode {

  override def producedAttributes: AttributeSet = outputSet -- child.outputSet

  /** As without it: otherwise a stateful operator above would get a shuffle that it does not need. */
  override def outputPartitioning: Partitioning = child.outputPartitioning match {
    case its: Expression if !its.references.subsetOf(outputSet) => UnknownPartitioning(0)
    case its => its
  }

  override protected def doExecute(): RDD[InternalRow] = {
    val (its, columns) = (values, child.output)
    child.execute().mapPartitionsWithIndex(
      (partition, rows) => {
        val projection = UnsafeProjection.create(its, columns)
        projection.initialize(partition)
        rows.map(projection)
      },
      preservesPartitioning = true)
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}

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

/**
 * Plans the nodes of points. Spark's operators become Java classes with numbers in their names. One operator of Spark
 * more would be a class more, and all others would have another number, so each would have to be compiled again.
 */
private[spark] object PointStrategy extends Strategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case PointFilter(condition, child) => Seq(PointFilterExec(condition, planLater(child)))
    case join @ PointJoin(_, _, _, left, table: PointTable) => Seq(PointJoinExec.of(join, table, planLater(left)))
    case other => columns(other).map(its => PointColumnsExec(its.values, its.output, planLater(its.rows))).toSeq
  }

  /** `output`, made of these `values` from rows. */
  private case class Columns(values: Seq[Expression], output: Seq[Attribute], rows: LogicalPlan)

  private def columns(plan: LogicalPlan): Option[Columns] = plan match {
    case its: PointColumns =>
      Some(over(PointColumns.replaced(its.child.output, its.former, its.values), its.output, its.child))
    // Drops what only the point needs.
    case Project(kept, its @ (_: PointFilter | _: PointColumns | _: PointJoin)) if isPlain(kept) =>
      Some(over(kept, kept.map(_.toAttribute), its))
    case _ => None
  }

  /** One operator instead of two, unless a row would then compute a value several times. */
  private def over(values: Seq[Expression], output: Seq[Attribute], child: LogicalPlan): Columns =
    columns(child) match {
      case Some(its) if isPlain(values) || isPlain(its.values) =>
        val made = AttributeMap(its.output.zip(its.values))
        Columns(values.map(_.transform { case a: Attribute => made.getOrElse(a, a) }), output, its.rows)
      case _ => Columns(values, output, child)
    }

  private def isPlain(values: Seq[Expression]): Boolean = values.forall(_.isInstanceOf[Attribute])
}
