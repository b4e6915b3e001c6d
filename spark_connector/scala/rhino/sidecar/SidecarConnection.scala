package rhino.spark.sidecar

import java.io.IOException
import java.util.concurrent.TimeUnit

import org.sparkproject.connect.grpc.{CallOptions, Grpc, InsecureChannelCredentials, ManagedChannel, Status}
import org.sparkproject.connect.grpc.StatusRuntimeException
import org.sparkproject.connect.grpc.stub.ClientCalls

import org.apache.spark.internal.Logging

import rhino.spark.settings.Settings
import rhino.spark.wire.GrpcErrors
import rhino.spark.wire.Schema.{message, method, Message}

/**
 * A JVM's connection to the sidecar of its node: one channel over the Unix socket, one attachment, and calls. Every
 * call has a deadline. Errors are IOExceptions that name the socket and the way out.
 *
 * @param host       Spark's name of this node
 * @param client     "<application>/<executor id>"
 * @param onExecutor false on the driver of a cluster, to which no tasks are sent
 */
private[rhino] class SidecarConnection(
    socket: String, host: String, client: String, onExecutor: Boolean, settings: Settings) extends Logging {

  private val FirstCallTimeoutS = 15
  private val AnotherSessionTimeoutS = 2
  private val FirstPauseMs = 20L // between attempts of a call
  private val PauseMaxMs = 500L
  private val channel: ManagedChannel =
    Grpc.newChannelBuilder(s"unix://$socket", InsecureChannelCredentials.create())
      .maxInboundMessageSize(64 * 1024 * 1024)
      .build()
  private val attachment = new Attachment(channel, socket, client, settings, check)
  attachment.start()

  def session(): SidecarSession = attachment.session()

  /** Seconds since the last session ended, or 0 during a session. */
  def awayS: Double = attachment.awayS

  /** The error text for a task without a session. */
  def failure: String = attachment.failure

  /**
   * Runs once per JVM. Compares the node's two names, and makes a first unary call so that class loading delays no
   * task.
   */
  private def check(session: SidecarSession): Unit = {
    if (session.host != host && onExecutor) {
      logWarning(s"Rhino sidecar ${session.workerId} on $socket calls this node '${session.host}', Spark calls it " +
        s"'$host': tasks will not be sent to their state. Start the sidecar with --host $host")
    }
    val options = CallOptions.DEFAULT.withDeadlineAfter(FirstCallTimeoutS, TimeUnit.SECONDS)
    ClientCalls.blockingUnaryCall(channel, method("Sidecar", "Describe"), options, message("DescribeRequest"))
  }

  /**
   * A unary call of the Sidecar service. UNAVAILABLE is retried until the deadline, because every call here is
   * idempotent. If the deadline ends the last attempt, the error contains the reason why the previous attempt failed.
   * `fields` receives the current session for each attempt: a restarted sidecar does not know the former one
   * (NOT_FOUND).
   */
  def call(name: String, requestName: String, timeoutS: Double, doing: => String)(
      fields: SidecarSession => Seq[(String, Any)]): Message = {
    val deadline = System.nanoTime() + (timeoutS * 1e9).toLong
    var pauseMs = FirstPauseMs
    var reason = Option.empty[StatusRuntimeException]
    def leftNs: Long = deadline - System.nanoTime()
    while (true) {
      val attached = session()
      try {
        val request = message(requestName, fields(attached): _*)
        val options = CallOptions.DEFAULT.withDeadlineAfter(math.max(leftNs, 1L), TimeUnit.NANOSECONDS)
        return ClientCalls.blockingUnaryCall(channel, method("Sidecar", name), options, request)
      } catch {
        case error: StatusRuntimeException =>
          if (!retriable(error, attached) || leftNs < TimeUnit.MILLISECONDS.toNanos(500)) {
            val shown = reason.filter(_ => error.getStatus.getCode == Status.Code.DEADLINE_EXCEEDED).getOrElse(error)
            throw new IOException(s"Rhino sidecar on $socket could not $doing: ${GrpcErrors.describe(shown)}", error)
          }
          reason = Some(error)
          Thread.sleep(pauseMs)
          pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      }
    }
    throw new IllegalStateException("unreachable")
  }

  private def retriable(error: StatusRuntimeException, attached: SidecarSession): Boolean =
    error.getStatus.getCode match {
      case Status.Code.UNAVAILABLE => true
      case Status.Code.NOT_FOUND => attachment.await(AnotherSessionTimeoutS)(_.id != attached.id).isDefined
      case _ => false
    }

  def close(): Unit = {
    attachment.close()
    channel.shutdownNow()
  }
}
