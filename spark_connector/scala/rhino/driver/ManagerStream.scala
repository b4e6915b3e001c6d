package rhino.spark.driver

import java.io.EOFException
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit, TimeoutException}

import org.sparkproject.connect.grpc.{CallOptions, ManagedChannel, Status}
import org.sparkproject.connect.grpc.stub.{ClientCalls, StreamObserver}

import rhino.spark.wire.Schema.{message, method, Fields, Message}

/**
 * One stream of DriverSession, from its hello to its end. `obey` carries out commands, on a thread of gRPC.
 *
 * @param hello fields of DriverHello
 */
private[spark] class ManagerStream(channel: ManagedChannel, hello: Seq[(String, Any)], obey: Message => Unit) {
  private val ended = new CompletableFuture[Throwable]()
  private val welcomed = new CompletableFuture[Message]()
  private val commands = new StreamObserver[Message] {
    override def onNext(command: Message): Unit =
      if (command.has("welcome")) welcomed.complete(command.sub("welcome")) else obey(command)
    override def onError(error: Throwable): Unit = { ended.complete(error); welcomed.completeExceptionally(error) }
    override def onCompleted(): Unit = onError(new EOFException("the manager has ended the session"))
  }
  private val events = ClientCalls.asyncBidiStreamingCall(
    channel.newCall(method("HandoverManager", "DriverSession"), CallOptions.DEFAULT), commands)
  send(message("DriverEvent", "hello" -> message("DriverHello", hello: _*)))

  def send(event: Message): Unit = ManagerStream.inParts(event).foreach(events.onNext)

  /**
   * Waits until the manager accepts this driver. Returns its DriverWelcome, or None if the stream has ended instead.
   *
   * @param patienceMs ends the stream without a welcome
   */
  def welcome(patienceMs: Long): Option[Message] =
    try Some(welcomed.get(patienceMs, TimeUnit.MILLISECONDS))
    catch {
      case _: ExecutionException => None
      case error: TimeoutException =>
        // Otherwise the reason would be CANCELLED, which is the answer of a manager that refuses.
        ended.complete(Status.UNAVAILABLE.withDescription(s"no welcome within $patienceMs ms").asRuntimeException())
        events.onError(error)
        None
    }

  def hasEnded: Boolean = ended.isDone

  /** Waits for the end. Returns its reason. */
  def reason(): Throwable = ended.get()

  def close(): Unit = events.onCompleted()
}

private[spark] object ManagerStream {
  private val PartBytes = 1024 * 1024 // rhino_core/rpc/parts.py

  /** The messages for a DriverEvent: itself, unless it is large. */
  def inParts(event: Message): Iterator[Message] =
    if (event.getSerializedSize <= PartBytes) Iterator(event)
    else {
      val data = event.toByteString
      Iterator.range(0, data.size, PartBytes).map { start =>
        val end = math.min(start + PartBytes, data.size)
        val part = message("Part", "data" -> data.substring(start, end), "last" -> (end == data.size))
        message("DriverEvent", "part" -> part)
      }
    }
}
