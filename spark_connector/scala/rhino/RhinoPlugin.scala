package rhino.spark

import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, SparkPlugin}

import rhino.spark.driver.RhinoDriverPlugin

/**
 * Rhino's plugin. On the driver it reports queries and serves desired locations; on executors it attaches to the
 * sidecar.
 */
class RhinoPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new RhinoDriverPlugin
  override def executorPlugin(): ExecutorPlugin = new RhinoExecutorPlugin
}
