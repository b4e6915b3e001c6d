package rhino.spark.restart

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{FileChannel, FileLock, OverlappingFileLockException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, Paths, StandardOpenOption}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.TimeUnit

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

/**
 * Locks on files, of this process. The kernel gives a lock to one process, and takes it back when that process has
 * ended, however it ends. Within the process, a lock belongs to one holder. No other code of this process may open such
 * a file: when it closes the file, the process loses the lock.
 *
 * An owner that hangs keeps its lock. So it gives a sign while it lives: it writes its file again. Who takes over from
 * a silent owner replaces the file. Then the former owner has lost the lock, and learns it at its next look.
 */
private[spark] object RunLocks {
  private case class Held(holder: String, channel: FileChannel, lock: FileLock, inode: Long, text: Array[Byte])
  private val SignS = 2L
  private val GuardMs = 5000L
  private val LookMs = 10L
  private val Own = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
  private val held = TrieMap.empty[Path, Held]
  private val monitors = TrieMap.empty[Path, AnyRef] // by folder, as its guard: a file system may hang
  private val apart = new Apart("rhino-sign")
  @volatile private var signed = 0L

  /** Whether `holder` has the lock now. `says` is written into the file, for those who do not get it. */
  def take(file: String, holder: String, says: String): Boolean = {
    Files.createDirectories(Paths.get(file).getParent, Own)
    alone(file) { path =>
      mine(path) match {
        case Some(its) => its.holder == holder
        case None => guarded(path)(lock(path, holder, says))
      }
    }
  }

  /**
   * Takes the lock from an owner that gives no sign. False if others have replaced the file `inode` before, or if its
   * time is not `signNs` any more: the new file of another standby may have the inode of the deleted one.
   */
  def takeOver(file: String, holder: String, says: String, inode: Long, signNs: Long): Boolean = alone(file) { path =>
    guarded(path) {
      val same = inodeOf(path).contains(inode) && Files.getLastModifiedTime(path).to(TimeUnit.NANOSECONDS) == signNs
      same && { Files.delete(path); lock(path, holder, says) }
    }
  }

  /** Gives a sign for each lock of this process. Never waits. Cheap if the last one is younger than two seconds. */
  def sign(): Unit = {
    val now = System.nanoTime()
    if (now - signed >= SignS * 1000000000L) {
      signed = now
      for ((path, its) <- held) apart(path) {
        try { // by its channel: with any other one the process would lose the lock
          its.channel.write(ByteBuffer.wrap(its.text), 0)
          its.channel.force(false)
        } catch { case NonFatal(_) => () } // others see no sign then, which is what it means
      }
    }
  }

  /** Nothing happens if the lock belongs to another holder. */
  def letGo(file: String, holder: String): Unit = alone(file) { path =>
    mine(path).filter(_.holder == holder).foreach { its =>
      its.channel.close() // the lock ends with it
      held.remove(path)
    }
  }

  /** "" if this process does not have the lock. */
  def holder(file: String): String = alone(file)(mine(_).map(_.holder).getOrElse(""))

  /** One thread at a time is at the locks of a folder. */
  private def alone[T](file: String)(act: Path => T): T = {
    val path = real(file)
    monitors.getOrElseUpdate(path.getParent, new Object).synchronized(act(path))
  }

  /** The lock of this process. None if it has ended, or its file was replaced or deleted. */
  private def mine(path: Path): Option[Held] = {
    for (its <- held.get(path) if lost(path, its)) {
      held.remove(path)
      its.channel.close()
    }
    held.get(path)
  }

  /** A look that fails says nothing. An interrupted thread closes its channel, and the lock ends with it. */
  private def lost(path: Path, its: Held): Boolean =
    try !its.channel.isOpen || !inodeOf(path).contains(its.inode)
    catch { case _: IOException => false }

  private def inodeOf(path: Path): Option[Long] =
    try Some(Files.getAttribute(path, "unix:ino").asInstanceOf[Long])
    catch { case _: NoSuchFileException => None }

  private def lock(path: Path, holder: String, says: String): Boolean = {
    val content = text(says).getBytes(UTF_8)
    val channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE)
    var taken = false
    try Option(channel.tryLock()).foreach { its =>
        channel.truncate(0)
        channel.write(ByteBuffer.wrap(content))
        held.put(path, Held(holder, channel, its, inodeOf(path).getOrElse(0L), content))
        taken = true
      }
    catch { case _: OverlappingFileLockException => () }
    finally if (!taken) channel.close() // else it would keep the lock from this process
    taken
  }

  /** One process at a time opens or replaces the file. Throws IOException if another one stays at it. */
  private def guarded(path: Path)(act: => Boolean): Boolean = {
    val file = path.resolveSibling("guard")
    val channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)
    try {
      val deadline = System.nanoTime() + GuardMs * 1000000L
      while (channel.tryLock() == null) {
        if (System.nanoTime() > deadline) throw new IOException(s"$file: another process has it locked for too long")
        Thread.sleep(LookMs)
      }
      act
    } finally channel.close()
  }

  /** One name for each file: with two, it would be opened twice. */
  private def real(file: String): Path = {
    val path = Paths.get(file)
    if (Files.isDirectory(path.getParent)) path.getParent.toRealPath().resolve(path.getFileName) else path
  }

  private def text(says: String): String = compact(render(
    ("pid" -> ProcessHandle.current.pid) ~ ("user" -> System.getProperty("user.name")) ~
      ("host" -> java.net.InetAddress.getLocalHost.getHostName) ~ ("says" -> says) ~
      ("sign_s" -> SignS)))
}
