package rhino.spark.sidecar

import java.io.IOException
import java.net.UnixDomainSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.{AsynchronousCloseException, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, LinkOption, NoSuchFileException, Path, Paths}
import java.util.concurrent.{Executors, ScheduledExecutorService, TimeUnit}

import org.sparkproject.connect.protobuf.ByteString

import rhino.spark.store.OwnFiles

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

/**
 * Checks that no other user has put the sidecar's socket there, or could do so, and serve forged state. Executors and
 * sidecar share files, so they are one Unix user anyway. The rules are those of rhino_core/rpc/greeting.py.
 */
private[rhino] object SocketOwner {
  def mine: Long = OwnFiles.mine

  /**
   * Throws IOException if the file at `socket`, or a folder above, belongs to another user than `user` or root, or if
   * others can write to such a folder. No file is no error.
   */
  def check(socket: String, user: Long): Unit = {
    val path = Paths.get(socket).toAbsolutePath
    ifThere(checkOwner(path, user, LinkOption.NOFOLLOW_LINKS))
    OwnFiles.above(path.getParent).foreach { folder =>
      ifThere {
        checkOwner(folder, user)
        if (OwnFiles.isOpen(folder, direct = folder == path.getParent))
          throw new IOException(s"others than the Unix user $user can write to $folder, so they could put their " +
            s"socket at $path: run chmod go-w $folder, or give another --socket and spark.rhino.socket")
      }
    }
  }

  private def checkOwner(path: Path, user: Long, options: LinkOption*): Unit = {
    val owner = OwnFiles.attribute(path, "uid", options: _*)
    if (owner != user && owner != 0) throw new IOException(
      s"$path belongs to the Unix user $owner, and this process runs as user $user: run sidecar and executors as one " +
        "user, with the socket in a folder that only this user can write to")
  }

  private def ifThere(check: => Unit): Unit =
    try check catch { case _: NoSuchFileException => () }
}
