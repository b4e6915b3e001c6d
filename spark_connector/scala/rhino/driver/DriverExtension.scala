package rhino.spark.driver

import java.util.ServiceLoader

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.SparkSessionExtensions

/** Takes part in the queries of a driver, from above the engine. The jar names its classes in `META-INF/services`. */
private[spark] trait DriverExtension {

  /** Adds its rules to a session. */
  def inject(extensions: SparkSessionExtensions): Unit

  /** `executors`: host and id of each one that can run tasks with state. */
  def start(executors: () => Seq[(String, String)]): Unit
  def stop(): Unit
}

private[spark] object DriverExtension {
  lazy val all: Seq[DriverExtension] =
    ServiceLoader.load(classOf[DriverExtension], getClass.getClassLoader).asScala.toSeq
}
