package rhino.spark.sidecar

import java.io.IOException
import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.sparkproject.connect.grpc.{CallOptions, ManagedChannel, StatusRuntimeException}
import org.sparkproject.connect.grpc.stub.ClientCalls

import org.apache.spark.internal.Logging

import rhino.spark.settings.Settings
import rhino.spark.wire.Schema.{message, method, Fields, Message}

/** This JVM's session, as the sidecar describes it: where its files are, and where new files must be created. */
private[rhino] case class SidecarSession(id: String, workerId: String, storeRoot: String, inbox: String)

private[rhino] object SidecarSession {
  def of(info: Message): SidecarSession = SidecarSession(
    info.string("session_id"), info.string("worker_id"), info.string("store_root"), info.string("inbox"))
}

/**
 * Keeps this JVM attached to its sidecar: a thread opens the Attach stream again whenever it ends. The end of the
 * stream frees this JVM's pins. `onFirst` runs once, on that thread, after the first session has begun.
 */
private[spark] class Attachment(
    channel: ManagedChannel, socket: String, client: String, settings: Settings, onFirst: () => Unit)
  extends Logging {

  private val PatienceS = 15
  private val PatienceWithoutAnyS = 1 // if there has been no sidecar from the start for longer than PatienceS
  private val FirstPauseMs = 50L // between attempts to attach
  private val PauseMaxMs = 1000L
  @volatile private var current: SidecarSession = _
  private var changed = false // since the last `awaitChange`
  @volatile private var closed = false
  @volatile private var lastFailure = "not attached yet"
  @volatile private var everAttached = false
  @volatile private var awaySince = System.nanoTime() // meaningful only while there is no session
  private var firstDone = false // used by the thread only
  private val thread = new Thread(() => keepAttached(), s"rhino-attach-$client")
  thread.setDaemon(true)

  def start(): Unit = thread.start()

  /** The worker of the present session's sidecar. None without a session. */
  def worker: Option[String] = Option(current).map(_.workerId)

  /** Waits until a session has begun or ended since the last call, at most `timeoutMs`. */
  def awaitChange(timeoutMs: Long): Unit = synchronized {
    if (!changed) wait(timeoutMs)
    changed = false
  }

  /** Seconds since the last session ended, or 0 during a session. */
  def awayS: Double = if (current != null) 0 else (System.nanoTime() - awaySince) / 1e9

  /** The error text for a task without a session. */
  def failure: String =
    s"no session with a Rhino sidecar on $socket ($lastFailure). Every node with executors needs a sidecar, as a " +
      s"service, as a pod, or by rhino sidecar --socket $socket --data-dir <folder> --manager ${settings.manager}. " +
      s"${Settings.Socket} must be the path of its socket, as executors see it"

  /**
   * Returns the session; waits for it if necessary. A task waits longer for a session that ended, because it probably
   * comes back. If there has never been one, the task fails early, so that Spark soon tries it elsewhere.
   */
  def session(): SidecarSession = {
    val patienceS = if (everAttached || awayS < PatienceS) PatienceS else PatienceWithoutAnyS
    await(patienceS)(_ => true).getOrElse(throw new IOException(failure))
  }

  /** Waits for a session that is `wanted`. None after the timeout. */
  def await(timeoutS: Int)(wanted: SidecarSession => Boolean): Option[SidecarSession] = synchronized {
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(timeoutS)
    def found: Option[SidecarSession] = Option(current).filter(wanted)
    while (found.isEmpty && !closed && System.nanoTime() < deadline) {
      channel.resetConnectBackoff() // after a long absence of the sidecar the channel's own pause would be minutes
      wait(200)
    }
    found
  }

  def close(): Unit = synchronized {
    closed = true
    notifyAll()
  }

  private def keepAttached(): Unit = {
    var pauseMs = FirstPauseMs
    while (!closed) {
      try {
        attach().foreach { session =>
          pauseMs = FirstPauseMs
          publish(session)
          if (!firstDone) {
            firstDone = true
            try onFirst()
            catch { // the session lasts: its stream would stay open, with its pins, beside that of the next one
              case NonFatal(error) => logWarning(s"Rhino sidecar on $socket: the first call has failed", error)
            }
          }
        }
        lastFailure = "the sidecar has ended the session"
      } catch {
        case error: StatusRuntimeException => lastFailure = GrpcErrors.describe(error)
        case error: IOException => lastFailure = error.getMessage
        case NonFatal(error) => lastFailure = error.toString
      }
      publish(null)
      if (!closed) {
        logInfo(s"Rhino sidecar on $socket: $lastFailure; attaching again")
        Thread.sleep(pauseMs)
        pauseMs = math.min(pauseMs * 2, PauseMaxMs)
      }
    }
  }

  /** Opens the stream. Its elements are descriptions of the same session; it ends with the session. */
  private def attach(): Iterator[SidecarSession] = {
    SocketOwner.check(socket, SocketOwner.mine)
    val request = message(
      "AttachRequest",
      "client" -> client,
      "settings" -> settings.message,
      "commit_timeout_s" -> settings.commitTimeoutS,
      "protocol_version" -> "1",
      "token" -> Greeter.token(socket))
    ClientCalls.blockingServerStreamingCall(
      channel, method("Sidecar", "Attach"), CallOptions.DEFAULT.withWaitForReady(), request)
      .asScala.map(SidecarSession.of)
  }

  private def publish(session: SidecarSession): Unit = synchronized {
    if (session != null) everAttached = true
    else if (current != null) awaySince = System.nanoTime()
    current = session
    changed = true
    notifyAll()
  }
}
