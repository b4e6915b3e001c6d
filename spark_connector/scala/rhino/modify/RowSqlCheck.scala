package rhino.spark.modify

import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{FunctionRegistry, UnresolvedFunction}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.expressions.{UnresolvedWindowExpression, WindowExpression}
import org.apache.spark.sql.classic.SparkSession

/** SQL of a point makes one value of each row. Spark would name its own plan for what does not. */
private[modify] object RowSqlCheck {
  private val Groups = Map(
    "agg_funcs" -> "is an aggregate function", "window_funcs" -> "is a window function",
    "generator_funcs" -> "makes several rows of one")
  private val TimeWindows = Set("window", "session_window")

  /** Throws IllegalArgumentException. */
  def check(text: String, session: SparkSession): Unit = session.sessionState.sqlParser.parseExpression(text).foreach {
    case _: WindowExpression | _: UnresolvedWindowExpression => refuse(text, "has an OVER clause")
    case aggregate: AggregateExpression => // of functions that Spark's grammar names
      refuse(text, s"${aggregate.aggregateFunction.prettyName} is an aggregate function")
    case call: UnresolvedFunction => call.nameParts match {
        case Seq(name) => why(name.toLowerCase).foreach(what => refuse(text, s"$name $what"))
        case _ => ()
      }
    case _ => ()
  }

  private def why(name: String): Option[String] =
    if (TimeWindows(name)) Some("groups rows by time")
    else FunctionRegistry.builtin.lookupFunction(FunctionIdentifier(name)).map(_.getGroup).flatMap(Groups.get)

  private def refuse(text: String, what: String): Nothing = throw new IllegalArgumentException(
    s"$text: $what, and SQL of a point makes one value of each row. Let the query compute it below the point")
}
