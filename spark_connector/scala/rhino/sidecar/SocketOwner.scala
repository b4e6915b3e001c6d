package rhino.spark.sidecar

import java.io.IOException
import java.nio.file.{Files, LinkOption, NoSuchFileException, Path, Paths}

import scala.jdk.CollectionConverters._

/**
 * Checks that no other user has put the sidecar's socket there, or could do so, and serve forged state. Executors and
 * sidecar share files, so they are one Unix user anyway. The rules are those of rhino_core/rpc/greeting.py.
 */
private[rhino] object SocketOwner {
  private val ByOthers = 2
  private val ByGroup = 16
  private val Sticky = 512

  /**
   * Throws IOException if the file at `socket`, or a folder above, belongs to another user than `user` or root, or if
   * others can write to such a folder. No file is no error.
   */
  def check(socket: String, user: Long): Unit = {
    val path = Paths.get(socket).toAbsolutePath
    checkOwner(path, user, LinkOption.NOFOLLOW_LINKS)
    Iterator.iterate(path.getParent)(_.getParent).takeWhile(_ != null).foreach { folder =>
      checkOwner(folder, user)
      if (isOpen(folder, direct = folder == path.getParent))
        throw new IOException(s"others than the Unix user $user can write to $folder, so they could put their socket " +
          s"at $path: run chmod go-w $folder, or give another --socket and spark.rhino.socket")
    }
  }

  private def checkOwner(path: Path, user: Long, options: LinkOption*): Unit =
    attribute(path, "uid", options: _*).filter(owner => owner != user && owner != 0).foreach { owner =>
      throw new IOException(s"$path belongs to the Unix user $owner, and this process runs as user $user: run " +
        "sidecar and executors as one user, with the socket in a folder that only this user can write to")
    }

  /** Whether other users can replace what is in the folder. `direct`: the socket itself is in it. */
  private def isOpen(folder: Path, direct: Boolean): Boolean = {
    // A user's private group has the user's number.
    val isPrivate = attribute(folder, "gid").exists(group => group == 0 || attribute(folder, "uid").contains(group))
    val writers = if (isPrivate) ByOthers else ByOthers | ByGroup
    attribute(folder, "mode").exists(mode => (mode & writers) != 0 && (direct || (mode & Sticky) == 0))
  }

  private def attribute(path: Path, name: String, options: LinkOption*): Option[Long] =
    try Some(Files.getAttribute(path, s"unix:$name", options: _*).asInstanceOf[Int].toLong)
    catch { case _: NoSuchFileException => None }

  /** The effective Unix user of this process. */
  lazy val mine: Long =
    Files.readAllLines(Paths.get("/proc/self/status")).asScala.collectFirst {
      case line if line.startsWith("Uid:") => line.split("\\s+")(2).toLong
    }.getOrElse(throw new IllegalStateException("/proc/self/status has no line 'Uid:'"))
}
