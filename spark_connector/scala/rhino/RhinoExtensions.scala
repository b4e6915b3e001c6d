package rhino.spark

import org.apache.spark.sql.SparkSessionExtensions

import rhino.spark.driver.{DriverExtension, StartCheck}

/**
 * Refuses a query in `start()` if Rhino could not keep its state, and adds what driver extensions have for a session.
 * The driver plugin adds it to spark.sql.extensions.
 */
class RhinoExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectCheckRule(new StartCheck(_))
    DriverExtension.all.foreach(_.inject(extensions))
  }
}
