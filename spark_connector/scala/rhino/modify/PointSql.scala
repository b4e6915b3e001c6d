package rhino.spark.modify

import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions.{Alias, Expression, NamedArgumentExpression, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LocalRelation, LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.DataType

/**
 * SQL of a modification at a point, with the Python functions that came with it. A call of one of them becomes what
 * PySpark makes of a UDF before names are looked up, so no function of the session counts instead. Spark's optimizer
 * then puts it into a node of its own.
 *
 * @param plan of the application: its Python functions say in which environment those of a modification run
 */
private[modify] class PointSql(functions: Seq[PointFunction], plan: LogicalPlan, session: SparkSession) {
  private lazy val like = PointSql.functionsOf(plan).headOption

  /** Throws AnalysisException or ParseException. */
  def condition(text: String, child: LogicalPlan): Expression =
    analysed(Filter(parsed(text), rowsOf(child))) match {
      case Filter(condition, _: LocalRelation) => condition
      case _ => several(text)
    }

  /** Throws AnalysisException or ParseException. */
  def expression(text: String, child: LogicalPlan): Expression = {
    analysed(Project(Seq(Alias(parsed(text), "value")()), rowsOf(child))) match {
      case Project(Seq(Alias(value, _)), _: LocalRelation) => value
      case _ => several(text)
    }
  }

  private def several(text: String): Nothing =
    throw new IllegalArgumentException(s"$text does not make one value of each row")

  /** Each function with these arguments. */
  def called(its: PointFunction, arguments: Seq[Expression]): PythonUDF = PythonUDF(
    its.name, PythonCode.made(its.code, its.python, like, session.sparkContext), DataType.fromJson(its.returns),
    arguments, its.evalType, udfDeterministic = true)

  private def parsed(text: String): Expression = {
    val its = session.sessionState.sqlParser.parseExpression(text)
    if (functions.isEmpty) its
    else its.transform { case call: UnresolvedFunction =>
      functions.find(_.isCalledBy(call)).fold[Expression](call)(called(_, call.arguments))
    }
  }

  private def rowsOf(child: LogicalPlan): LogicalPlan = LocalRelation(child.output)

  private def analysed(plan: LogicalPlan): LogicalPlan = {
    val analyzer = session.sessionState.analyzer
    val made = analyzer.execute(plan)
    analyzer.checkAnalysis(made)
    made
  }
}

private[modify] object PointSql {
  def of(its: Modification, plan: LogicalPlan, session: SparkSession): PointSql =
    new PointSql(its.functions, plan, session)

  /** The Python functions of a plan. */
  def functionsOf(plan: LogicalPlan): Seq[PythonUDF] =
    plan.collect { case node => node.expressions.flatMap(_.collect { case udf: PythonUDF => udf }) }.flatten

  def isNamed(argument: Expression): Boolean = argument.isInstanceOf[NamedArgumentExpression]
}
