package rhino.spark

import java.util.{Map => JavaMap}

import org.apache.spark.SparkEnv
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.driver.RhinoDriverPlugin
import rhino.spark.files.LocalFolders
import rhino.spark.settings.Settings
import rhino.spark.sidecar.{Sidecar, SidecarReports}

/**
 * Rhino's plugin. On the driver it reports queries and serves desired locations; on executors it attaches to the
 * sidecar.
 */
class RhinoPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new RhinoDriverPlugin
  override def executorPlugin(): ExecutorPlugin = new RhinoExecutorPlugin
}

private[spark] class RhinoExecutorPlugin extends ExecutorPlugin {
  private var reports: SidecarReports = _

  /** Attaches in the background. A task that needs the sidecar waits for it, or fails with the socket's name. */
  override def init(context: PluginContext, extra: JavaMap[String, String]): Unit = {
    val settings = Settings(context.conf)
    // On executors PluginContext.hostname fails, because their RPC has no address. In local mode the block manager is
    // not initialised yet.
    val host = Option(SparkEnv.get.blockManager.blockManagerId).map(_.host)
      .getOrElse(context.conf.get("spark.driver.host", "localhost"))
    // An external shuffle service reads the blocks of dead executors.
    if (!context.conf.getBoolean("spark.shuffle.service.enabled", false))
      LocalFolders.hold(Internals.localFolders(SparkEnv.get))
    val client = s"${context.conf.get("spark.app.id", "local")}/${context.executorID}"
    Sidecar.start(host, client, settings)
    reports = new SidecarReports(context, host)
    reports.start()
  }

  override def shutdown(): Unit = {
    if (reports != null) reports.interrupt()
    Sidecar.stop()
  }
}
