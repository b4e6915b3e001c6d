package rhino.spark.modify

import java.util.IdentityHashMap

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeMap, AttributeReference, Expression, PythonUDF, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, CollectMetrics, LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.DataType

/**
 * The plan of a batch with modifications. Functions of Scala and Java that can be replaced are called through an object
 * of ours, replaced or not. Attributes that others refer to keep their names and types.
 */
private[spark] object Overlay {

  def apply(plan: LogicalPlan, modifications: Seq[Modification], session: SparkSession): LogicalPlan =
    if (modifications.isEmpty && JarCheck.functionsOf(plan).isEmpty) plan
    else AnalysisHelper.allowInvokingTransformsInAnalyzer {
      val functions = modifications.filter(_.kind == Modification.Function).map(m => m.target -> m).toMap
      val replaced = withFunctions(plan, functions, session)
      val sql = (its: Modification) => PointSql.of(its, plan, session)
      val filters = modifications.filter(_.kind == Modification.Filter)
      val joins = modifications.filter(_.kind == Modification.Join)
      val columns = modifications.filter(_.kind == Modification.Columns)
      withColumns(withJoins(withFilters(replaced, filters, sql), joins, sql), columns, sql)
    }

  private def withFunctions(
      plan: LogicalPlan, functions: Map[String, Modification], session: SparkSession): LogicalPlan = {
    val own = new IdentityHashMap[AnyRef, OwnFunction] // calls of the same function must stay equal
    plan.transformAllExpressions {
      case udf: PythonUDF if functions.get(udf.name).exists(fits(_, udf)) =>
        PythonCode.replaced(udf, functions(udf.name).code)
      case udf: ScalaUDF if udf.udfName.flatMap(functions.get).exists(JarCheck.fits(_, udf)) =>
        val its = functions(udf.udfName.get).jar.get
        udf.copy(function = its.loaded(udf.children.size, session.sparkContext).asFunction)
      case udf: ScalaUDF if udf.udfName.nonEmpty =>
        udf.copy(function = own.computeIfAbsent(udf.function, new OwnFunction(_, udf.children.size)).asFunction)
    }
  }

  /** Of the same kind and type. A later version of the application may have another function of this name. */
  private def fits(its: Modification, udf: PythonUDF): Boolean = its.jar.isEmpty && its.fits(udf.evalType) &&
    DataType.equalsIgnoreNullability(DataType.fromJson(its.returns), udf.dataType)

  /** Modifications for which a plan has no place, because the application has changed since. */
  def misplaced(plan: LogicalPlan, modifications: Seq[Modification]): Seq[Modification] = {
    val points = plan.collect { case point: CollectMetrics => point.name }.toSet
    val (udfs, others) = (PointSql.functionsOf(plan), JarCheck.functionsOf(plan))
    modifications.filterNot { its =>
      if (its.jar.nonEmpty) others.exists(JarCheck.fits(its, _))
      else if (its.kind == Modification.Function) udfs.exists(udf => udf.name == its.target && fits(its, udf))
      else points(its.target)
    }
  }

  private def withFilters(plan: LogicalPlan, filters: Seq[Modification], sql: Modification => PointSql): LogicalPlan = {
    val points = filters.map(its => its.target -> its).toMap
    plan.transform {
      case point: CollectMetrics if points.contains(point.name) && point.isStreaming =>
        val its = points(point.name)
        point.copy(child = PointFilter(sql(its).condition(its.filter, point.child), point.child))
    }
  }

  private def withColumns(plan: LogicalPlan, all: Seq[Modification], sql: Modification => PointSql): LogicalPlan =
    below(plan, all) { (its, child) =>
      columns(its.columns.map { case (name, text) => name -> sql(its).expression(text, child) }, child, child)
    }

  private def withJoins(plan: LogicalPlan, all: Seq[Modification], sql: Modification => PointSql): LogicalPlan =
    below(plan, all) { (its, child) =>
      val join = new JoinedPoint(its.join.get, child, sql(its))
      val made = columns(its.columns.map { case (name, text) => name -> join.expression(text) }, child, join.plan)
      if (made.output.size == child.output.size) made else Project(made.output.take(child.output.size), made)
    }

  /**
   * The columns of a point, with new values from `rows`. Changed columns have new ids: with the former ones, Spark's
   * inference would take old and new values for equal.
   */
  private def columns(values: Map[String, Expression], point: LogicalPlan, rows: LogicalPlan): LogicalPlan = {
    val former = point.output.filter(column => values.contains(column.name))
    val made = former.map { column =>
      AttributeReference(column.name, column.dataType, column.nullable, column.metadata)()
    }
    if (former.isEmpty) rows else PointColumns(former, former.map(column => values(column.name)), made, rows)
  }

  /** Each point with what `make` puts between it and the plan below it. */
  private def below(plan: LogicalPlan, all: Seq[Modification])(
      make: (Modification, LogicalPlan) => LogicalPlan): LogicalPlan = {
    val points = all.map(its => its.target -> its).toMap
    if (points.isEmpty) plan
    else plan.transformUpWithNewOutput {
      case point: CollectMetrics if points.contains(point.name) && point.isStreaming =>
        val made = make(points(point.name), point.child)
        val changed = point.child.output.zip(made.output).filter { case (old, its) => old.exprId != its.exprId }
        val mapping = AttributeMap(changed)
        val metrics = point.metrics.map(_.transform { case a: Attribute => mapping.getOrElse(a, a) })
        (point.copy(metrics = metrics.asInstanceOf[point.metrics.type], child = made), changed)
    }
  }
}
