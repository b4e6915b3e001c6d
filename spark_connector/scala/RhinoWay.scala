package org.apache.spark.sql.execution.streaming.state

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.internal.SQLConf

/** How the state of a query comes to Rhino, if it does. `refusal`: why the query must not run so. */
private[state] case class RhinoWay(name: String, served: Boolean, refusal: Option[String] = None)

private[state] object RhinoWay {
  val Provider: String = classOf[RhinoStateStoreProvider].getName
  val Stock: String = classOf[RocksDBStateStoreProvider].getName
  private val Key = SQLConf.STATE_STORE_PROVIDER_CLASS.key

  /**
   * `provider`: the one that runs, which Spark takes from the checkpoint's offset log, whatever the session says.
   * `wanted`: the one that the application is configured with.
   */
  def of(provider: String, checkpoint: Path, wanted: String): RhinoWay =
    (provider, RhinoCheckpoint.isRhino(checkpoint)) match {
      case (Provider, true) => RhinoWay("twice", served = false, Some(RhinoCheckpoint.both(checkpoint.toString)))
      case (Provider, false) => RhinoWay("by its provider", served = true)
      case (Stock, true) => RhinoWay("by its file system", served = true)
      case (other, true) => RhinoWay("not by this provider", served = false, Some(
        s"the checkpoint $checkpoint is on rhino://, which serves $Stock only, not $other: set $Key to it and start from " +
          "a new checkpoint"))
      case (_, false) if wanted == Provider => RhinoWay("not at all", served = false, Some(
        s"the checkpoint $checkpoint was made with the state store provider $provider, which its offset log records; " +
          s"$Provider cannot go on with it as it is. Take its state over (rhino adopt <folder of the checkpoint>), start " +
          "this query from a new checkpoint, or run it in a session without Rhino's provider"))
      case _ => RhinoWay(s"$provider, and a checkpointLocation that is not on rhino://", served = false)
    }
}

/** Says what to do when transformWithState meets Rhino's provider: Spark's own message knows only its own classes. */
class RhinoExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(_ => RhinoPlanCheck)
}

private object RhinoPlanCheck extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    val operator = plan.getClass.getSimpleName
    require(!operator.startsWith("TransformWithState") || !plan.isStreaming ||
      SQLConf.get.stateStoreProviderClass != RhinoWay.Provider,
      s"$operator insists on Spark's own state store provider: set ${SQLConf.STATE_STORE_PROVIDER_CLASS.key}=" +
        s"${RhinoWay.Stock} and write the checkpointLocation as rhino://<scheme>[@<authority>]/<path>, such as " +
        "rhino://file/checkpoints/q (in Python: rhino_checkpoint(...)); Rhino then serves this query too")
    Nil
  }
}
