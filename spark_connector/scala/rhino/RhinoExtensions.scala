package rhino.spark

import org.apache.spark.sql.SparkSessionExtensions

import rhino.spark.driver.StartCheck

/**
 * Refuses a query in `start()` if Rhino could not keep its state. The driver plugin adds it to spark.sql.extensions.
 */
class RhinoExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = extensions.injectCheckRule(new StartCheck(_))
}
