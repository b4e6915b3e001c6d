package rhino.spark.driver

import java.util.{Collections, Map => JavaMap}

import org.apache.spark.{SPARK_VERSION, SparkContext}
import org.apache.spark.api.plugin.{DriverPlugin, PluginContext}
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, LocatingCoordinator}
import org.apache.spark.sql.internal.SQLConf

import rhino.spark.restart.Restarts
import rhino.spark.settings.{RequiredConf, Settings}
import rhino.spark.sidecar.SidecarReports
import rhino.spark.wire.Resources

private[spark] class RhinoDriverPlugin extends DriverPlugin {
  private val Protocol = 1 // same as in rhino_core/version.py
  private var context: SparkContext = _
  private val executors = new Executors(Internals.isDecommissioned(context, _))
  private val listener = new ExecutorListener(executors, event => session.send(event))
  private val locations = new DesiredLocations(() => StreamRun.running, executors, () => listener.look())
  private var session: DriverSession = _
  private var guard: HeartbeatGuard = _

  override def init(sc: SparkContext, plugin: PluginContext): JavaMap[String, String] = {
    SparkOfJar.check(SPARK_VERSION)
    context = sc
    val conf = Internals.conf(sc)
    val settings = Settings(conf)
    RequiredConf.complete(conf, sc.hadoopConfiguration)
    LocatingCoordinator.install(conf, locations)
    val tasks = new EndedTasks
    // When plugins start, Spark has no application id yet.
    val hello = Seq(
      "application_id" -> s"${sc.appName}-${sc.startTime}", "spark_version" -> SPARK_VERSION,
      "settings" -> settings.message, "host" -> conf.get("spark.driver.host", ""),
      "rhino_version" -> Resources.text("/rhino/version"), "protocol" -> Protocol)
    val provider = conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key, "")
    val runs = () => { listener.look(); StreamRun.running } // executors are looked at as often as queries
    session = new DriverSession(settings, locations, executors, hello,
      send => new QueryFollower(runs, locations, () => tasks.take(), provider, send))
    def standing(id: String): Standing =
      executors.usable.workerOf(id).fold[Standing](Standing.Usual)(session.standing)
    guard = HeartbeatGuard(sc, conf, standing)
    Seq(listener, tasks, guard).foreach(Internals.listen(sc, _))
    session.open()
    guard.start()
    DriverView.addTab(sc, settings.manager, session, locations)
    Restarts.start()
    val places = () => executors.usable.all.map(executor => (executor.host, executor.id))
    DriverExtension.all.foreach(_.start(places))
    Collections.emptyMap()
  }

  override def registerMetrics(appId: String, plugin: PluginContext): Unit =
    DriverView.register(plugin.metricRegistry, session, locations)

  /** The answer confirms the report: without it, the executor reports again. */
  override def receive(message: Any): AnyRef = {
    SidecarReports.read(message).foreach(listener.reported)
    java.lang.Boolean.TRUE
  }

  override def shutdown(): Unit = {
    DriverExtension.all.foreach(_.stop())
    Restarts.stop()
    if (guard != null) guard.stop()
    if (session != null) session.close()
  }
}

/** The minor version of Spark that this jar was compiled for. Another one has other internal classes. */
private[spark] object SparkOfJar {
  lazy val version: String = Resources.text("/rhino/spark-version")

  def check(running: String, compiled: String = version): Unit =
    if (!running.startsWith(compiled + ".")) throw new IllegalArgumentException(
      s"this Rhino jar is for Spark $compiled, and this is Spark $running: use the jar that " +
        s"`rhino jar` prints where this Spark is installed")
}
