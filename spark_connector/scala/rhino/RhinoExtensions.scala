package rhino.spark

import org.apache.spark.sql.SparkSessionExtensions

import rhino.spark.driver.StartCheck
import rhino.spark.modify.{ModifyRule, PointStrategy}

/**
 * Refuses a query in `start()` if Rhino could not keep its state, and plans batches with the modifications that are
 * bound to them. The driver plugin adds it to spark.sql.extensions.
 */
class RhinoExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectCheckRule(new StartCheck(_))
    extensions.injectPostHocResolutionRule(new ModifyRule(_))
    extensions.injectPlannerStrategy(_ => PointStrategy)
  }
}
