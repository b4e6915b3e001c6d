package rhino.spark.files

import java.io.IOException
import java.nio.file.{Files, FileSystemException, NoSuchFileException, Path, Paths, StandardCopyOption}
import java.util.UUID
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.internal.Logging

import rhino.spark.sidecar.SidecarSession

/** A file for the sidecar. If it is refused it must be deleted: a full disk would stay full until the session's end. */
private[files] class InboxFile(@volatile private var path: Path) extends Logging {

  /** The path of the file when it was last used. */
  def newestPath: Path = path

  def name: String = path.getFileName.toString

  /**
   * Path of the file in the session's inbox. After a restart of the sidecar the inbox is another one, and the former
   * one is deleted. Unless the sidecar has taken the file over before, the call fails, and Spark tries the task again.
   */
  def in(session: SidecarSession): Path = {
    path = Paths.get(session.inbox, name)
    path
  }

  def discard(): Unit =
    try Files.deleteIfExists(path)
    catch {
      case error: IOException => logWarning(s"Rhino: $path stays until the session with the sidecar ends", error)
    }
}

private[files] object InboxFile extends Logging {
  private val warnedOfCopies = new AtomicBoolean(false)

  /** Path of a new file in the session's inbox. */
  def path(session: SidecarSession): Path = Paths.get(session.inbox, UUID.randomUUID().toString)

  /** Creates `to` as a hard link of `from`. On another file system it is a copy, with one warning for each JVM. */
  def linkOrCopy(from: Path, to: Path): Unit = {
    Files.deleteIfExists(to)
    try Files.createLink(to, from)
    catch {
      case error: FileSystemException if !error.isInstanceOf[NoSuchFileException] =>
        if (warnedOfCopies.compareAndSet(false, true)) {
          logWarning(s"Rhino cannot hard-link $from to $to (${error.getReason}); copying instead, which costs time " +
            "in proportion to the state. Put the sidecar's --data-dir on the file system of spark.local.dir")
        }
        Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING)
    }
  }
}
