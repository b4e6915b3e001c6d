package org.apache.spark.sql.execution.streaming.state

import java.util.{Collections, Map => JavaMap}
import java.util.concurrent.{CompletableFuture, LinkedBlockingQueue, TimeoutException, TimeUnit}

import scala.util.control.NonFatal

import org.sparkproject.connect.grpc.{CallOptions, Grpc, InsecureChannelCredentials, ManagedChannel, Status, StatusRuntimeException}
import org.sparkproject.connect.grpc.stub.{ClientCalls, StreamObserver}

import org.apache.spark.{SPARK_VERSION, SparkContext, SparkEnv}
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorRemoved}
import org.apache.spark.sql.internal.SQLConf

/** Rhino in Spark's processes: on the driver it reports and serves desired locations, on executors it attaches. */
class RhinoPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new RhinoDriverPlugin
  override def executorPlugin(): ExecutorPlugin = new RhinoExecutorPlugin
}

private class RhinoExecutorPlugin extends ExecutorPlugin {

  /** Attaches in the background; a task that needs the sidecar waits for it and fails with the socket's name. */
  override def init(context: PluginContext, extra: JavaMap[String, String]): Unit = {
    val settings = RhinoSettings(context.conf)
    // PluginContext.hostname fails on executors, whose RPC has no address; in local mode the block manager comes later.
    val host = Option(SparkEnv.get.blockManager.blockManagerId).map(_.host)
      .getOrElse(context.conf.get("spark.driver.host", "localhost"))
    RhinoSidecar.start(host, s"${context.conf.get("spark.app.id", "local")}/${context.executorID}", settings)
  }

  override def shutdown(): Unit = RhinoSidecar.stop()
}

private class RhinoDriverPlugin extends DriverPlugin with Logging {
  private val Supported = Seq("4.2.", "4.3.")
  private var session: RhinoDriverSession = _

  override def init(sc: SparkContext, context: PluginContext): JavaMap[String, String] = {
    require(Supported.exists(SPARK_VERSION.startsWith),
      s"Spark $SPARK_VERSION is not supported by Rhino: use ${Supported.map(_ + "x").mkString(" or ")}")
    val settings = RhinoSettings(sc.conf)
    val extensions = sc.conf.get("spark.sql.extensions", "").split(',').map(_.trim).filter(_.nonEmpty)
    sc.conf.set("spark.sql.extensions", (extensions :+ classOf[RhinoExtensions].getName).distinct.mkString(","))
    val locations = new RhinoLocations
    val sqlConf = new SQLConf
    sc.conf.getAll.foreach { case (key, value) if key.startsWith("spark.sql.") => sqlConf.setConfString(key, value)
      case _ => }
    val env = SparkEnv.get
    env.rpcEnv.setupEndpoint(
      "StateStoreCoordinator", new RhinoStateStoreCoordinator(env.rpcEnv, sqlConf, locations))
    // Spark has no application id yet when plugins start.
    val provider = sc.conf.get("spark.sql.streaming.stateStore.providerClass", "")
    val tasks = new RhinoTasks
    session = new RhinoDriverSession(settings, locations, tasks, provider, s"${sc.appName}-${sc.startTime}")
    sc.addSparkListener(new ExecutorListener(locations, session))
    sc.addSparkListener(tasks)
    session.open()
    Collections.emptyMap()
  }

  override def shutdown(): Unit = if (session != null) session.close()
}

private class ExecutorListener(locations: RhinoLocations, session: RhinoDriverSession) extends SparkListener {
  import RhinoSchema._

  private def changed(id: String, host: String, removed: Boolean, reason: String): Unit =
    session.send(message("DriverEvent", "executor_changed" -> message(
      "ExecutorChanged", "executor_id" -> id, "host" -> host,
      "removed" -> java.lang.Boolean.valueOf(removed), "reason" -> reason)))

  override def onExecutorAdded(event: SparkListenerExecutorAdded): Unit = {
    locations.executorAdded(event.executorId, event.executorInfo.executorHost)
    changed(event.executorId, event.executorInfo.executorHost, removed = false, "")
  }

  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit = {
    val host = locations.executorRemoved(event.executorId).getOrElse("")
    changed(event.executorId, host, removed = true, event.reason)
  }
}

/**
 * The driver's stream to the handover manager. The first connection must succeed within managerTimeout (a manager may be
 * about to be restarted), or there is a clear error; later ones are tried again for ever, while queries go on. After each
 * one the running queries introduce themselves again.
 */
private class RhinoDriverSession(
    settings: RhinoSettings, locations: RhinoLocations, tasks: RhinoTasks, provider: String, applicationId: String)
  extends Logging {
  import RhinoSchema._

  private val WaitingMax = 256 // events kept while the manager is away; newer batches tell more than older ones
  private val channel: ManagedChannel = {
    val builder = Grpc.newChannelBuilder(settings.manager, InsecureChannelCredentials.create())
    builder.keepAliveTime(10, TimeUnit.SECONDS) // gRPC raises less to that
    builder.keepAliveTimeout(2, TimeUnit.SECONDS)
    builder.keepAliveWithoutCalls(true)
    builder.build()
  }
  private val outgoing = new LinkedBlockingQueue[Message](WaitingMax)
  private val queries = new RhinoQueries(locations, tasks, provider, send, (kind, m) => message("DriverEvent", kind -> m))
  private val opened = new CompletableFuture[Unit]()
  @volatile private var lastFailure: Throwable = _ // of the attempts to open
  private var connected = false // of the session's thread: the present stream has been welcomed
  @volatile private var closed = false
  private val thread = new Thread(() => run(), "rhino-driver-session")
  thread.setDaemon(true)

  /** Never waits: without a manager the oldest events give way. */
  def send(event: Message): Unit = while (!outgoing.offer(event)) outgoing.poll()

  def open(): Unit = {
    thread.start()
    try opened.get((settings.managerTimeoutS * 1000).toLong, TimeUnit.MILLISECONDS)
    catch {
      case error: java.util.concurrent.ExecutionException => close(); throw refused(error.getCause)
      case error: TimeoutException => close(); throw refused(Option(lastFailure).getOrElse(error))
    }
    queries.start()
  }

  private def refused(cause: Throwable): Throwable = cause match {
    case error: StatusRuntimeException if error.getStatus.getCode != Status.Code.UNAVAILABLE =>
      new IllegalStateException(s"the Rhino manager at ${settings.manager} refuses this application: " +
        error.getStatus.getDescription, error)
    case other =>
      new IllegalStateException(s"no Rhino manager answers at ${settings.manager} within ${settings.managerTimeoutS} s (${other.getMessage}): start one with " +
        s"`rhino manager --listen ${settings.manager} --data-dir <folder>`, or correct ${RhinoSettings.Manager}", other)
  }

  private def run(): Unit = {
    var pauseMs = 100L
    while (!closed) {
      val ended = new CompletableFuture[Throwable]()
      try {
        converse(ended)
        val error = ended.get()
        if (!opened.isDone) notOpened(error) else lost(error)
      } catch {
        case _: InterruptedException => closed = true
        case NonFatal(error) => if (!opened.isDone) notOpened(error) else lost(error)
      }
      pauseMs = if (connected) 100L else math.min(pauseMs * 2, 1000L)
      connected = false
      if (!closed) Thread.sleep(pauseMs)
    }
  }

  private def notOpened(error: Throwable): Unit = error match {
    case status: StatusRuntimeException if status.getStatus.getCode == Status.Code.UNAVAILABLE =>
      if (lastFailure == null)
        logWarning(s"no Rhino manager answers at ${settings.manager} yet: trying for ${settings.managerTimeoutS} s (${RhinoSettings.ManagerTimeout})")
      lastFailure = error
    case other => opened.completeExceptionally(other)
  }

  /** Says once that the manager is away, however often the connection is tried. */
  private def lost(error: Throwable): Unit = if (connected && !closed) {
    logWarning(s"Rhino manager at ${settings.manager}: ${error.getMessage}. Queries go on; connecting again until it is back")
  }

  /** One stream, from hello to its end; returns when the end is known. */
  private def converse(ended: CompletableFuture[Throwable]): Unit = {
    channel.resetConnectBackoff() // its own pause grows to minutes; `run` has one
    val welcomed = new CompletableFuture[Unit]()
    val call = channel.newCall(method("HandoverManager", "DriverSession"), CallOptions.DEFAULT)
    val requests = ClientCalls.asyncBidiStreamingCall(call, new StreamObserver[Message] {
      override def onNext(command: Message): Unit =
        if (command.has("desired")) locations.update(command.sub("desired")) else welcomed.complete(())
      override def onError(error: Throwable): Unit = { ended.complete(error); welcomed.completeExceptionally(error) }
      override def onCompleted(): Unit = onError(new java.io.EOFException("the manager has ended the session"))
    })
    requests.onNext(message("DriverEvent", "hello" -> message(
      "DriverHello", "application_id" -> applicationId, "spark_version" -> SPARK_VERSION,
      "settings" -> settings.message)))
    try welcomed.get()
    catch { case _: java.util.concurrent.ExecutionException => return }
    queries.introductions().foreach(requests.onNext)
    connected = true
    if (!opened.complete(())) logInfo(s"Rhino manager at ${settings.manager} is back")
    while (!ended.isDone && !closed) {
      val event = outgoing.poll(100, TimeUnit.MILLISECONDS)
      if (event != null) requests.onNext(event)
    }
    if (closed) requests.onCompleted()
  }

  def close(): Unit = {
    closed = true
    queries.stop()
    channel.shutdown()
    thread.join(1000)
    channel.shutdownNow()
  }
}
