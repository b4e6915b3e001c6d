package rhino.spark.files

import java.nio.channels.FileChannel
import java.nio.file.{Files, Path}
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * Holds a lock on a file beside each local folder of this JVM until the process ends, however it ends. The sidecar
 * removes folders whose lock is held no more (worker_runtime/upkeep/local_folders.py), if it is told to.
 */
private[rhino] object LocalFolders extends Logging {
  val Lock = ".rhino-lock"
  private var held = Seq.empty[FileChannel] // the lock ends with the channel, so nobody closes it

  def hold(folders: Seq[Path]): Unit = synchronized {
    folders.foreach { folder =>
      try hold(folder)
      catch { case NonFatal(error) => logInfo(s"no lock for $folder: the sidecar will not remove it", error) }
    }
  }

  /**
   * The file gets its name when it is locked: nobody finds it unlocked while this process lives. A JVM that ends by
   * itself deletes it after Spark has deleted the folder.
   */
  private def hold(folder: Path): Unit = {
    val lock = folder.resolveSibling(s"${folder.getFileName}$Lock")
    val fresh = folder.resolveSibling(s"${lock.getFileName}.new")
    val channel = FileChannel.open(fresh, CREATE_NEW, WRITE)
    held :+= channel
    channel.tryLock()
    Files.move(fresh, lock, ATOMIC_MOVE)
    lock.toFile.deleteOnExit()
  }
}
