package rhino.spark.sidecar

import java.io.IOException
import java.util.concurrent.TimeUnit

import org.sparkproject.connect.grpc.{CallOptions, Grpc, InsecureChannelCredentials, ManagedChannel, Status, StatusRuntimeException}
import org.sparkproject.connect.grpc.stub.ClientCalls

import rhino.spark.settings.{ClassNames, Settings}
import rhino.spark.wire.Schema.{message, method, Message}

/**
 * A JVM's connection to the sidecar of its node: one channel over the Unix socket, one attachment, and calls. Every
 * call has a deadline, and keepalive ends the calls of a sidecar that does not answer. Errors are IOExceptions that
 * name the socket and the way out.
 *
 * @param client "<application>/<executor id>"
 */
private[rhino] class SidecarConnection(socket: String, client: String, settings: Settings) {

  private val FirstCallTimeoutS = 15
  private val AnotherSessionTimeoutS = 2
  private val RestartS = 15 // the time that a sidecar has for a restart
  private val WithProgressNs = TimeUnit.DAYS.toNanos(30)
  private val FirstPauseMs = 20L // between attempts of a call
  private val PauseMaxMs = 500L
  private val channel: ManagedChannel =
    Grpc.newChannelBuilder(s"unix://$socket", InsecureChannelCredentials.create())
      .maxInboundMessageSize(64 * 1024 * 1024)
      .keepAliveTime(20, TimeUnit.SECONDS)
      .keepAliveTimeout(40, TimeUnit.SECONDS) // a busy machine needs it
      .build()
  private[sidecar] val attachment = new Attachment(channel, socket, client, settings, () => warmUp())
  attachment.start()

  def session(): SidecarSession = attachment.session()

  /** Seconds since the last session ended, or 0 during a session. */
  def awayS: Double = attachment.awayS

  /** Makes a first unary call, once per JVM, so that class loading delays no task. */
  private def warmUp(): Unit = {
    val options = CallOptions.DEFAULT.withDeadlineAfter(FirstCallTimeoutS, TimeUnit.SECONDS)
    ClientCalls.blockingUnaryCall(channel, method("Sidecar", "Describe"), options, message("DescribeRequest"))
  }

  /**
   * A unary call of the Sidecar service. UNAVAILABLE is retried until the deadline, because every call here is
   * idempotent. If the deadline ends the last attempt, the error contains the reason why the previous attempt failed.
   * `fields` receives the current session for each attempt: a restarted sidecar does not know the former one
   * (NOT_FOUND).
   *
   * @param withProgress the sidecar itself ends the call when nothing moves any more. As long as bytes move, an attempt
   *   may last. `timeoutS` limits the attempts that fail at once, and begins again after a restart of the sidecar.
   */
  def call(name: String, requestName: String, timeoutS: Double, doing: => String, withProgress: Boolean = false)(
      fields: SidecarSession => Seq[(String, Any)]): Message = {
    val timeoutNs = (timeoutS * 1e9).toLong
    var deadline = System.nanoTime() + timeoutNs
    var pauseMs = FirstPauseMs
    var reason = Option.empty[StatusRuntimeException]
    def leftNs: Long = deadline - System.nanoTime()
    while (true) {
      val attached = session()
      val began = System.nanoTime()
      try {
        val request = message(requestName, fields(attached): _*)
        val longestNs = if (withProgress) WithProgressNs else math.max(leftNs, 1L)
        val options = CallOptions.DEFAULT.withDeadlineAfter(longestNs, TimeUnit.NANOSECONDS)
        return ClientCalls.blockingUnaryCall(channel, method("Sidecar", name), options, request)
      } catch {
        case error: StatusRuntimeException =>
          val lasted = withProgress && System.nanoTime() - began > timeoutNs
          val again = retriable(error, attached, lasted)
          if (lasted) deadline = System.nanoTime() + timeoutNs
          if (!again || leftNs < TimeUnit.MILLISECONDS.toNanos(500)) {
            val cut = !withProgress && error.getStatus.getCode == Status.Code.DEADLINE_EXCEEDED
            val shown = reason.filter(_ => cut).getOrElse(error)
            throw new IOException(s"Rhino sidecar on $socket could not $doing: ${GrpcErrors.describe(shown)}", error)
          }
          reason = Some(error)
          Thread.sleep(pauseMs)
          pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      }
    }
    throw new IllegalStateException("unreachable")
  }

  /** @param lasted the sidecar worked on it for long. Its own answer is the last word, but not that it has ended. */
  private def retriable(error: StatusRuntimeException, attached: SidecarSession, lasted: Boolean): Boolean =
    error.getStatus.getCode match {
      case Status.Code.UNAVAILABLE => !lasted || attachment.await(RestartS)(_.id != attached.id).isDefined
      case Status.Code.NOT_FOUND => attachment.await(AnotherSessionTimeoutS)(_.id != attached.id).isDefined
      case _ => false
    }

  def close(): Unit = {
    attachment.close()
    channel.shutdownNow()
  }
}

/** This JVM's sidecar connection. The executor plugin creates it early, so that it is ready before a task needs it. */
private[rhino] object Sidecar {
  @volatile private var connection: SidecarConnection = _
  @volatile private var newestSettings: Settings = _

  def start(host: String, client: String, settings: Settings): Unit = synchronized {
    newestSettings = settings
    if (connection == null) connection = new SidecarConnection(settings.socket(host), client, settings)
  }

  def stop(): Unit = synchronized {
    if (connection != null) connection.close()
    connection = null
  }

  def settings: Settings = newestSettings

  /** Whether this JVM runs the plugin's executor side. A driver on a cluster does not. */
  def running: Boolean = connection != null

  def get: SidecarConnection = {
    val found = connection
    if (found == null) {
      throw new IOException("Rhino's plugin is not running in this JVM: set spark.plugins to " +
        s"${ClassNames.Plugin} (rhino_conf() does)")
    }
    found
  }
}

private[sidecar] object GrpcErrors {

  /** Code, description and cause of a failed call, in one line. */
  def describe(error: StatusRuntimeException): String = {
    val status = error.getStatus
    val cause = Option(status.getCause).map(c => s": ${c.getMessage}").getOrElse("")
    s"${status.getCode}: ${Option(status.getDescription).getOrElse("")}$cause"
  }
}
