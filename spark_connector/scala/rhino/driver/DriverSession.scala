package rhino.spark.driver

import java.util.UUID
import java.util.concurrent.atomic.AtomicReference
import java.util.concurrent.{CompletableFuture, ExecutionException, LinkedBlockingQueue, TimeoutException, TimeUnit}

import scala.util.control.NonFatal

import org.sparkproject.connect.grpc.{Status, StatusRuntimeException}

import org.apache.spark.internal.Logging

import rhino.spark.settings.Settings
import rhino.spark.wire.Schema.{message, Fields, Message}

/**
 * The driver's session with the handover manager. The first connection must succeed within managerTimeout, because a
 * manager may be restarting; otherwise the application fails with a clear error. Later connections are retried forever
 * while queries continue. After each connection the session sends the live executors and the running queries.
 *
 * @param hello    fields of DriverHello
 * @param follower makes the follower of this driver's queries, which sends its events by the given function
 */
private[driver] class DriverSession(
    settings: Settings, locations: DesiredLocations, executors: Executors, hello: Seq[(String, Any)],
    follower: (Message => Unit) => QueryFollower) extends Logging {

  private val WaitingMax = 256 // events kept while the manager is away; newer batches contain more than older ones
  private val FirstPauseMs = 100L // between attempts to connect
  private val PauseMaxMs = 1000L
  private val connection = new ManagerChannel(settings)
  private val outgoing = new LinkedBlockingQueue[Message](WaitingMax)
  private val queries = follower(send)
  private val opened = new CompletableFuture[Unit]()
  @volatile private var token = "" // of the newest session; the next session presents it to replace that one
  @volatile private var lastFailure: Throwable = _ // of the attempts to connect
  @volatile private var connected = false // written by the session's thread only: the present stream was welcomed
  private val lost = new AtomicReference(Option.empty[Set[String]]) // workers, as the manager says; None: there is none
  @volatile private var closed = false
  private val thread = new Thread(() => run(), "rhino-driver-session")
  thread.setDaemon(true)

  /** Never blocks. While there is no manager, the oldest events are dropped. */
  def send(event: Message): Unit = while (!outgoing.offer(event)) outgoing.poll()

  def open(): Unit = {
    thread.start()
    try opened.get((settings.managerTimeoutS * 1000).toLong, TimeUnit.MILLISECONDS)
    catch {
      case error: ExecutionException => close(); throw notOpen(error.getCause)
      case error: TimeoutException => close(); throw notOpen(Option(lastFailure).getOrElse(error))
    }
    queries.start()
  }

  def isConnected: Boolean = connected

  /** What the manager says of a worker. */
  def standing(worker: String): Standing = lost.get match {
    case None => Standing.Unknown
    case Some(workers) => if (workers(worker)) Standing.Lost else Standing.Usual
  }

  private def notOpen(cause: Throwable): Throwable = cause match {
    case error: StatusRuntimeException if error.getStatus.getCode != Status.Code.UNAVAILABLE =>
      new IllegalStateException(
        s"the Rhino manager at ${settings.manager} refuses this application: ${error.getStatus.getDescription}", error)
    case error: IllegalArgumentException => error // the certificate
    case other =>
      val listen = settings.manager.takeWhile(_ != ',')
      new IllegalStateException(
        s"no Rhino manager answers at ${settings.manager} within ${settings.managerTimeoutS} s " +
          s"(${other.getMessage}): start one with `rhino manager --listen $listen --data-dir <folder>`, " +
          s"or correct ${Settings.Manager}" + tlsHint, other)
  }

  private def tlsHint: String =
    if (settings.tlsDir.isEmpty) s". If it asks for a certificate, name its folder with ${Settings.TlsDir}"
    else s". If it runs, it may not accept the certificate in ${settings.tlsDir.get}"

  private def run(): Unit = {
    var pauseMs = FirstPauseMs
    while (!closed) {
      try failed(converse(if (connection.several) 50 * pauseMs else Long.MaxValue))
      catch {
        case _: InterruptedException => closed = true
        case NonFatal(error) => failed(error)
      }
      if (!closed) connection.elsewhere()
      pauseMs = if (connected) FirstPauseMs else math.min(pauseMs * 2, PauseMaxMs)
      connected = false
      if (!closed) Thread.sleep(pauseMs)
    }
  }

  private def failed(error: Throwable): Unit = if (opened.isDone) away(error) else notYetOpen(error)

  private def notYetOpen(error: Throwable): Unit = error match {
    case status: StatusRuntimeException if status.getStatus.getCode == Status.Code.UNAVAILABLE =>
      if (lastFailure == null) {
        logWarning(s"no Rhino manager answers at ${settings.manager} yet: trying for ${settings.managerTimeoutS} s " +
          s"(${Settings.ManagerTimeout})")
      }
      lastFailure = error
    case other => opened.completeExceptionally(other)
  }

  /** Logs once that the manager is away, not for every connection attempt. */
  private def away(error: Throwable): Unit = if (connected && !closed) {
    logWarning(s"Rhino manager at ${settings.manager}: ${error.getMessage}. Queries go on; connecting again until it " +
      "is back")
  }

  /** Runs one stream, from hello until its end. Returns why it has ended. Another address may have the leader. */
  private def converse(patienceMs: Long): Throwable = {
    val channel = connection.current()
    channel.resetConnectBackoff() // the channel's own pause grows to minutes; `run` has its own
    val stream = new ManagerStream(channel, hello :+ ("former_token" -> token), obey)
    try stream.welcome(patienceMs).foreach { its =>
      token = its.string("token")
      queries.archived = its.bool("archives")
      lost.compareAndSet(None, Some(Set.empty)) // else a command was faster
      introduce(stream)
      connected = true
      if (!opened.complete(())) logInfo(s"Rhino manager at ${settings.manager} is back")
      while (!stream.hasEnded && !closed) {
        val event = outgoing.poll(100, TimeUnit.MILLISECONDS)
        if (event != null) stream.send(event)
      }
      if (closed) stream.close()
    } finally lost.set(None)
    stream.reason()
  }

  /** Sends what a manager must know first: executors, running queries. */
  private def introduce(stream: ManagerStream): Unit = {
    executors.usable.all.foreach(executor => stream.send(ExecutorListener.changed(executor)))
    queries.introductions().foreach(stream.send)
  }

  private def obey(command: Message): Unit =
    if (command.has("desired")) locations.update(command.sub("desired"))
    else if (command.has("lost")) lost.set(Some(command.sub("lost").strings("workers").toSet))
    else if (command.has("refused")) {
      val query = command.sub("refused")
      queries.refuse(UUID.fromString(query.string("run_id")), query.string("reason"))
    } else if (command.has("checkpoint")) {
      val wanted = command.sub("checkpoint")
      val read = new Thread(
        () => send(queries.checkpoint(wanted.string("job"), wanted.long("batch_id"))), "rhino-checkpoint")
      read.setDaemon(true)
      read.start()
    } else if (command.has("probe")) {
      // The manager asks because another driver has begun a run. If this driver's run has ended just now, that comes
      // first: otherwise the manager would refuse the other run.
      queries.lookNow()
      send(message("DriverEvent", "alive" -> message("DriverAlive")))
    }

  def close(): Unit = {
    closed = true
    queries.stop()
    connection.close()
    thread.join(1000)
    connection.closeNow()
  }
}
