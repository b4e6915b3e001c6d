package rhino.spark.sidecar

import java.io.IOException
import java.nio.file.{Files, LinkOption, NoSuchFileException, Paths}

import scala.jdk.CollectionConverters._

/**
 * Checks which user owns the sidecar's socket. In a folder that others can write to, another user could put a socket in
 * its place, and serve forged state. Executors and sidecar share files, so they are one Unix user anyway.
 */
private[rhino] object SocketOwner {

  /** Throws IOException if the file at `socket` belongs to another user than `user` or root. No file is no error. */
  def check(socket: String, user: Long): Unit =
    try {
      val owner = Files.getAttribute(Paths.get(socket), "unix:uid", LinkOption.NOFOLLOW_LINKS).asInstanceOf[Int].toLong
      if (owner != user && owner != 0)
        throw new IOException(s"$socket belongs to the Unix user $owner, and this process runs as user $user: run " +
          "sidecar and executors as one user, with the socket in a folder that only this user can write to")
    } catch {
      case _: NoSuchFileException => ()
    }

  /** The effective Unix user of this process. */
  lazy val mine: Long =
    Files.readAllLines(Paths.get("/proc/self/status")).asScala.collectFirst {
      case line if line.startsWith("Uid:") => line.split("\\s+")(2).toLong
    }.getOrElse(throw new IllegalStateException("/proc/self/status has no line 'Uid:'"))
}
