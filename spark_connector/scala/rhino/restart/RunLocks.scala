package rhino.spark.restart

import java.nio.ByteBuffer
import java.nio.channels.{FileChannel, FileLock, OverlappingFileLockException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.nio.file.attribute.PosixFilePermissions

import scala.collection.mutable

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

/**
 * Locks on files, of this process. The kernel gives a lock to one process, and takes it back when that process has
 * ended, however it ends. Within the process, a lock belongs to one holder. No other code of this process may open such
 * a file: when it closes the file, the process loses the lock.
 */
private[spark] object RunLocks {
  private case class Held(holder: String, channel: FileChannel, lock: FileLock)
  private val Own = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
  private val held = mutable.Map.empty[Path, Held]

  /** Whether `holder` has the lock now. `says` is written into the file, for those who do not get it. */
  def take(file: String, holder: String, says: String): Boolean = synchronized {
    Files.createDirectories(Paths.get(file).getParent, Own)
    val path = real(file)
    held.get(path) match {
      case Some(its) => its.holder == holder
      case None =>
        val channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE)
        val lock = try Option(channel.tryLock()) catch {
          case _: OverlappingFileLockException => None
          case error: Throwable => channel.close(); throw error
        }
        lock match {
          case Some(its) =>
            channel.truncate(0)
            channel.write(ByteBuffer.wrap(text(says).getBytes(UTF_8)))
            held.put(path, Held(holder, channel, its))
          case None => channel.close()
        }
        lock.isDefined
    }
  }

  /** Nothing happens if the lock belongs to another holder. */
  def letGo(file: String, holder: String): Unit = synchronized {
    val path = real(file)
    held.get(path).filter(_.holder == holder).foreach { its =>
      held.remove(path)
      its.lock.release()
      its.channel.close()
    }
  }

  /** "" if this process does not have the lock. */
  def holder(file: String): String = synchronized(held.get(real(file)).map(_.holder).getOrElse(""))

  /** One name for each file: with two, it would be opened twice. */
  private def real(file: String): Path = {
    val path = Paths.get(file)
    if (Files.isDirectory(path.getParent)) path.getParent.toRealPath().resolve(path.getFileName) else path
  }

  private def text(says: String): String = compact(render(
    ("pid" -> ProcessHandle.current.pid) ~ ("user" -> System.getProperty("user.name")) ~
      ("host" -> java.net.InetAddress.getLocalHost.getHostName) ~ ("says" -> says)))
}
