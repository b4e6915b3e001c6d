package rhino.spark.modify.points

import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression, PythonUDF, ScalaUDF}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.types.DataType

import rhino.spark.modify.jars.JarShape
import rhino.spark.modify.records.Modification

/** The functions of a plan that modifications replace. */
private[spark] object PlanFunctions {
  def python(plan: LogicalPlan): Seq[PythonUDF] = all(plan) { case udf: PythonUDF => udf }

  /** The functions of Scala and Java that have a name. */
  def jvm(plan: LogicalPlan): Seq[ScalaUDF] = all(plan) { case udf: ScalaUDF if udf.udfName.nonEmpty => udf }

  private def all[T](plan: LogicalPlan)(wanted: PartialFunction[Expression, T]): Seq[T] =
    plan.collect { case node => node.expressions.flatMap(_.collect(wanted)) }.flatten

  /** Of the same kind and type. A later version of the application may have another function of this name. */
  def fits(its: Modification, udf: PythonUDF): Boolean = its.jar.isEmpty && its.fits(udf.evalType) &&
    DataType.equalsIgnoreNullability(DataType.fromJson(its.returns), udf.dataType)

  /** Whether the class was checked for a function like this one. */
  def fits(its: Modification, udf: ScalaUDF): Boolean =
    udf.udfName.contains(its.target) && its.jar.exists(_.fits(JarShape.of(udf).text))

  def isNamed(argument: Expression): Boolean = argument.isInstanceOf[NamedArgumentExpression]
}
