package org.apache.spark.sql.execution.streaming.state

import java.io.IOException
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicReference

import scala.util.control.NonFatal

import org.sparkproject.connect.grpc.{CallOptions, Grpc, InsecureChannelCredentials, ManagedChannel, Status, StatusRuntimeException}
import org.sparkproject.connect.grpc.stub.ClientCalls

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging

/** What the sidecar says of this JVM's session: where its files lie, where to put new ones. */
private[state] case class RhinoSession(id: String, workerId: String, host: String, storeRoot: String, inbox: String)

/**
 * The executor's line to the sidecar of its node: one channel over the Unix socket, one Attach stream whose end frees
 * this JVM's pins. Every call has a deadline; errors are IOExceptions that name the socket and the way out.
 * `host`: what Spark calls this node; `client`: "<application>/<executor id>".
 */
private[state] class RhinoSidecar(socket: String, host: String, client: String, settings: RhinoSettings) extends Logging {
  import RhinoSchema._

  private val AttachTimeoutS = 15
  private val AnotherSessionTimeoutS = 2
  private val channel: ManagedChannel =
    Grpc.newChannelBuilder(s"unix://$socket", InsecureChannelCredentials.create())
      .maxInboundMessageSize(64 * 1024 * 1024)
      .build()
  private val current = new AtomicReference[RhinoSession]()
  @volatile private var closed = false
  @volatile private var lastFailure = "not attached yet"
  private val lifeLine = new Thread(() => keepAttached(), s"rhino-attach-$client")
  lifeLine.setDaemon(true)
  lifeLine.start()

  /** The session, once attached; waits for it up to `AttachTimeoutS`. */
  def session(): RhinoSession =
    awaitSession(AttachTimeoutS)(_ => true).getOrElse(throw new IOException(unreachable(lastFailure)))

  private def awaitSession(timeoutS: Int)(wanted: RhinoSession => Boolean): Option[RhinoSession] = synchronized {
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(timeoutS)
    def found: Option[RhinoSession] = Option(current.get()).filter(wanted)
    while (found.isEmpty && !closed && System.nanoTime() < deadline) {
      channel.resetConnectBackoff() // after a long absence of the sidecar the channel's own pause would be minutes
      wait(200)
    }
    found
  }

  private def unreachable(why: String): String =
    s"no Rhino sidecar answers on $socket ($why). Start one on this node: rhino sidecar --socket $socket " +
      s"--data-dir <folder> --manager ${settings.manager}, or set ${RhinoSettings.Socket} to its socket"

  private def keepAttached(): Unit = {
    var pauseMs = 50L
    var checked = false
    while (!closed) {
      try {
        val request = message(
          "AttachRequest",
          "client" -> client,
          "settings" -> settings.message,
          "commit_timeout_s" -> settings.commitTimeoutS,
          "protocol_version" -> "1")
        val replies = ClientCalls.blockingServerStreamingCall(
          channel, method("Sidecar", "Attach"), CallOptions.DEFAULT.withWaitForReady(), request)
        while (replies.hasNext) {
          val info = replies.next()
          pauseMs = 50L
          publish(RhinoSession(
            info.string("session_id"), info.string("worker_id"), info.string("host"),
            info.string("store_root"), info.string("inbox")))
          if (!checked) {
            checked = true
            check(current.get())
          }
        }
        lastFailure = "the sidecar has ended the session"
      } catch {
        case error: StatusRuntimeException => lastFailure = describe(error)
        case NonFatal(error) => lastFailure = error.toString
      }
      publish(null)
      if (!closed) {
        logInfo(s"Rhino sidecar on $socket: $lastFailure; attaching again")
        Thread.sleep(pauseMs)
        pauseMs = math.min(pauseMs * 2, 1000L)
      }
    }
  }

  /** Once per JVM: the node's two names, and a first unary call, so that a task's is not slowed by class loading. */
  private def check(session: RhinoSession): Unit = {
    if (session.host != host && !client.endsWith(s"/${SparkContext.DRIVER_IDENTIFIER}")) {
      logWarning(s"Rhino sidecar ${session.workerId} on $socket calls this node '${session.host}', Spark calls it '$host': " +
        s"tasks will not be sent to their state. Start the sidecar with --host $host")
    }
    val options = CallOptions.DEFAULT.withDeadlineAfter(AttachTimeoutS, TimeUnit.SECONDS)
    ClientCalls.blockingUnaryCall(channel, method("Sidecar", "Describe"), options, message("DescribeRequest"))
  }

  private def publish(session: RhinoSession): Unit = synchronized {
    current.set(session)
    notifyAll()
  }

  private def describe(error: StatusRuntimeException): String = {
    val status = error.getStatus
    val cause = Option(status.getCause).map(c => s": ${c.getMessage}").getOrElse("")
    s"${status.getCode}: ${Option(status.getDescription).getOrElse("")}$cause"
  }

  /**
   * A unary call of the Sidecar service. UNAVAILABLE is tried again until the deadline: every call here is idempotent.
   * `fields` gets the session anew for each attempt: a restarted sidecar does not know the former one (NOT_FOUND).
   */
  def call(name: String, requestName: String, timeoutS: Double, doing: => String)(
      fields: RhinoSession => Seq[(String, Any)]): Message = {
    val deadline = System.nanoTime() + (timeoutS * 1e9).toLong
    var pauseMs = 20L
    while (true) {
      val left = deadline - System.nanoTime()
      val attached = session()
      try {
        val request = message(requestName, fields(attached): _*)
        val options = CallOptions.DEFAULT.withDeadlineAfter(math.max(left, 1L), TimeUnit.NANOSECONDS)
        return ClientCalls.blockingUnaryCall(channel, method("Sidecar", name), options, request)
      } catch {
        case error: StatusRuntimeException =>
          val retriable = error.getStatus.getCode match {
            case Status.Code.UNAVAILABLE => true
            case Status.Code.NOT_FOUND => awaitSession(AnotherSessionTimeoutS)(_.id != attached.id).isDefined
            case _ => false
          }
          if (!retriable || left < TimeUnit.MILLISECONDS.toNanos(500)) {
            throw new IOException(s"Rhino sidecar on $socket could not $doing: ${describe(error)}", error)
          }
          Thread.sleep(pauseMs)
          pauseMs = math.min(pauseMs * 2, 500L)
      }
    }
    throw new IllegalStateException("unreachable")
  }

  def close(): Unit = {
    closed = true
    channel.shutdownNow()
    synchronized(notifyAll())
  }
}

/** The one sidecar connection of this JVM; made by the executor plugin, so that the channel is warm before a task needs it. */
private[state] object RhinoSidecar {
  @volatile private var instance: RhinoSidecar = _
  @volatile var settings: RhinoSettings = _

  def start(host: String, client: String, settings: RhinoSettings): Unit = synchronized {
    this.settings = settings
    if (instance == null) instance = new RhinoSidecar(settings.socket(host), host, client, settings)
  }

  def stop(): Unit = synchronized {
    if (instance != null) instance.close()
    instance = null
  }

  /** Whether this JVM runs the plugin's executor side: a driver on a cluster does not. */
  def running: Boolean = instance != null

  def get: RhinoSidecar = {
    val found = instance
    if (found == null) {
      throw new IOException(
        "Rhino's plugin is not running in this JVM: set spark.plugins to " +
          s"${classOf[RhinoPlugin].getName} (rhino_conf() does)")
    }
    found
  }
}
