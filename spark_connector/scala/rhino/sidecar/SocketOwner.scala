package rhino.spark.sidecar

import java.io.IOException
import java.nio.file.{LinkOption, NoSuchFileException, Path, Paths}

import rhino.spark.store.OwnFiles

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
