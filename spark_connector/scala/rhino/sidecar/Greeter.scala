package rhino.spark.sidecar

import java.io.IOException
import java.net.UnixDomainSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.{AsynchronousCloseException, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.util.concurrent.{Executors, ScheduledExecutorService, TimeUnit}

import org.sparkproject.connect.protobuf.ByteString

/**
 * Asks the sidecar's greeter, on the socket beside the sidecar's, for the token with which this JVM attaches. The
 * answer is described in rhino_core/rpc/greeting.py.
 */
private[rhino] object Greeter {
  private val TokenBytes = 16
  private val ReasonBytes = 500
  private val AnswerTimeoutS = 5L
  private lazy val watch: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor { work =>
    val thread = new Thread(work, "rhino-greeter-timeout")
    thread.setDaemon(true)
    thread
  }

  def path(socket: String): String = s"$socket.auth"

  /** Returns a token. Empty: there is no greeter, because the sidecar is older or has not started. */
  def token(socket: String): ByteString = {
    val greeter = path(socket)
    if (!Files.exists(Paths.get(greeter))) return ByteString.EMPTY
    SocketOwner.check(greeter, SocketOwner.mine)
    val channel = SocketChannel.open(UnixDomainSocketAddress.of(greeter))
    val timeout = watch.schedule((() => channel.close()): Runnable, AnswerTimeoutS, TimeUnit.SECONDS)
    try {
      val answer = ByteBuffer.allocate(1 + ReasonBytes + 1)
      while (answer.hasRemaining && channel.read(answer) >= 0) ()
      tokenIn(answer.array.take(answer.position()), greeter)
    } catch {
      case _: AsynchronousCloseException => throw new IOException(s"$greeter has not answered for $AnswerTimeoutS s")
    } finally {
      timeout.cancel(false)
      channel.close()
    }
  }

  private[spark] def tokenIn(answer: Array[Byte], greeter: String): ByteString = answer.headOption match {
    case Some(1) if answer.length == 1 + TokenBytes => ByteString.copyFrom(answer, 1, TokenBytes)
    case Some(0) if answer.length <= 1 + ReasonBytes =>
      throw new IOException(s"the sidecar on $greeter refuses this user: ${new String(answer.drop(1), UTF_8)}")
    case _ => throw new IOException(s"$greeter: ${answer.length} bytes, which are no answer of a sidecar's greeter")
  }
}
