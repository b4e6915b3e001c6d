package rhino.spark.modify.points

import java.util.IdentityHashMap

import scala.collection.mutable

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeMap, AttributeReference, Expression, PythonUDF, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, CollectMetrics, LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode

import rhino.spark.modify.jars.OwnFunction
import rhino.spark.modify.records.Modification

/**
 * The plan of a batch with modifications. Functions of Scala and Java that can be replaced are called through an object
 * of ours, replaced or not. Attributes that others refer to keep their names and types.
 *
 * @param batchMs the time of the batch
 */
private[spark] class Overlay(
    plan: LogicalPlan, modifications: Seq[Modification], session: SparkSession, batchMs: => Long) {

  private val misfits = mutable.Map.empty[Long, String] // by number, why its point has no place for it

  /** The plan. Throws IllegalStateException for SQL that Spark does not know any more. */
  val made: LogicalPlan =
    if (modifications.isEmpty && PlanFunctions.jvm(plan).isEmpty) plan
    else AnalysisHelper.allowInvokingTransformsInAnalyzer(withColumns(withJoins(withFilters(withFunctions))))

  /** Modifications without a place in the plan, because the application has changed since. Each with the reason. */
  def misplaced: Seq[(Modification, String)] = {
    val points = plan.collect { case point: CollectMetrics => point.name }.toSet
    val (udfs, others) = (PlanFunctions.python(plan), PlanFunctions.jvm(plan))
    modifications.flatMap { its =>
      val there =
        if (its.jar.nonEmpty) others.exists(PlanFunctions.fits(its, _))
        else if (its.kind == Modification.Function)
          udfs.exists(udf => udf.name == its.target && PlanFunctions.fits(its, udf))
        else points(its.target)
      val reason = if (there) misfits.get(its.number) else Some("the application has no such place any more")
      reason.map(its -> _)
    }
  }

  private def of(kind: String): Map[String, Modification] =
    modifications.filter(_.kind == kind).map(its => its.target -> its).toMap

  private def withFunctions: LogicalPlan = {
    val functions = of(Modification.Function)
    val own = new IdentityHashMap[AnyRef, OwnFunction] // calls of the same function must stay equal
    plan.transformAllExpressions {
      case udf: PythonUDF if functions.get(udf.name).exists(PlanFunctions.fits(_, udf)) =>
        PythonCode.replaced(udf, functions(udf.name).code)
      case udf: ScalaUDF if udf.udfName.flatMap(functions.get).exists(PlanFunctions.fits(_, udf)) =>
        val its = functions(udf.udfName.get).jar.get
        udf.copy(function = its.loaded(udf.children.size, session.sparkContext).asFunction)
      case udf: ScalaUDF if udf.udfName.nonEmpty =>
        udf.copy(function = own.computeIfAbsent(udf.function, new OwnFunction(_, udf.children.size)).asFunction)
    }
  }

  private def withFilters(plan: LogicalPlan): LogicalPlan = {
    val points = of(Modification.Filter)
    plan.transform {
      case point: CollectMetrics if points.contains(point.name) && point.isStreaming =>
        val its = points(point.name)
        point.copy(child = changed(its, point) { sql =>
          PointFilter(BatchTime.in(sql.condition(its.filter, point.child), batchMs), point.child)
        })
    }
  }

  private def withColumns(plan: LogicalPlan): LogicalPlan = below(plan, of(Modification.Columns)) {
    (its, child, sql) => columns(its, child, child, sql.expression(_, child))
  }

  private def withJoins(plan: LogicalPlan): LogicalPlan = below(plan, of(Modification.Join)) { (its, child, sql) =>
    val join = new JoinedPoint(its.join.get, child, sql)
    val made = columns(its, child, join.plan, join.expression)
    if (made.output.size == child.output.size) made else Project(made.output.take(child.output.size), made)
  }

  /**
   * The columns of a point, with new values from `rows`. Changed columns have new ids: with the former ones, Spark's
   * inference would take old and new values for equal.
   */
  private def columns(
      its: Modification, point: LogicalPlan, rows: LogicalPlan, value: String => Expression): LogicalPlan = {
    val (former, values) = its.columns.toSeq.map { case (name, text) =>
      val (column, made) = (PointFit.column(name, its.target, point), value(text))
      PointFit.check(column, made, text)
      column -> BatchTime.in(made, batchMs)
    }.unzip
    val made = former.map { column =>
      AttributeReference(column.name, column.dataType, column.nullable, column.metadata)()
    }
    if (former.isEmpty) rows else PointColumns(former, values, made, rows)
  }

  /** Each point with what `make` puts between it and the plan below it. */
  private def below(plan: LogicalPlan, points: Map[String, Modification])(
      make: (Modification, LogicalPlan, PointSql) => LogicalPlan): LogicalPlan =
    if (points.isEmpty) plan
    else plan.transformUpWithNewOutput {
      case point: CollectMetrics if points.contains(point.name) && point.isStreaming =>
        val made = changed(points(point.name), point)(make(points(point.name), point.child, _))
        val others = point.child.output.zip(made.output).filter { case (old, its) => old.exprId != its.exprId }
        val mapping = AttributeMap(others)
        val metrics = point.metrics.map(_.transform { case a: Attribute => mapping.getOrElse(a, a) })
        (point.copy(metrics = metrics.asInstanceOf[point.metrics.type], child = made), others)
    }

  /** The plan of a modification above the rows below its point: the same rows, if it does not fit. */
  private def changed(its: Modification, point: CollectMetrics)(make: PointSql => LogicalPlan): LogicalPlan =
    try PointFit.known(point)(make(PointSql.of(its, plan, session)))
    catch {
      case misfit: Misfit =>
        misfits.put(its.number, misfit.getMessage)
        point.child
      case error: AnalysisException => throw new IllegalStateException(
          s"$its cannot be planned any more: ${error.getMessage}. Withdraw it by `rhino modify withdraw`, or start " +
            "the query with the code that it was made for", error)
    }
}

private[spark] object Overlay {
  /** The plan of a batch with these modifications. */
  def of(batch: IncrementalExecution, modifications: Seq[Modification]): LogicalPlan = new Overlay(
    batch.logical.clone(), modifications, batch.sparkSession, batch.offsetSeqMetadata.batchTimestampMs).made
}
