package rhino.spark.modify.records

import java.io.FileNotFoundException
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException => LocalAlreadyExists, Files, Path => LocalPath, Paths}
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.nio.file.attribute.PosixFilePermissions
import java.util
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.hadoop.security.UserGroupInformation

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

import rhino.spark.store.OwnFiles

/** The files of the folder `modifications`: the name of each but of jars is a number, in a folder of its kind. */
private[spark] trait FactFiles {

  /** Creates nothing: without a modification the folder does not exist. */
  def exists: Boolean

  def numbers(kind: String): Seq[Long]
  def bytes(kind: String, number: Long): Array[Byte] = bytes(kind, number.toString)

  /**
   * Also of files that have other names. Throws IllegalArgumentException if another user has written the file, or
   * could: its code would run as this user.
   */
  def bytes(kind: String, name: String): Array[Byte]
  def text(kind: String, number: Long): String = new String(bytes(kind, number), UTF_8)
  def write(kind: String, number: Long, text: String): Unit = write(kind, number, text.getBytes(UTF_8))

  /**
   * Atomically: it is on disk before its name appears. Throws Hadoop's FileAlreadyExistsException if another process
   * has written it.
   */
  def write(kind: String, number: Long, content: Array[Byte]): Unit
}

private[spark] object FactFiles {
  def sorted(names: Seq[String]): Seq[Long] = names.filter(_.matches("\\d{1,18}")).map(_.toLong).sorted
}

/**
 * On a file system of this machine, where Hadoop would be slow: it starts processes for owners and permissions, and the
 * thread of the query waits for what it writes.
 */
private[spark] class LocalFactFiles(root: LocalPath) extends FactFiles {
  private def path(kind: String, name: String): LocalPath = root.resolve(kind).resolve(name)

  override def exists: Boolean = Files.isDirectory(root)

  override def numbers(kind: String): Seq[Long] =
    FactFiles.sorted(Option(root.resolve(kind).toFile.list).toSeq.flatten)

  override def bytes(kind: String, name: String): Array[Byte] = OwnFiles.read(path(kind, name))

  /** As the command does it: a link is made only if there is no file of that name. Only this user reads it. */
  override def write(kind: String, number: Long, content: Array[Byte]): Unit = {
    val target = path(kind, number.toString)
    makeFolder(target.getParent)
    val temporary = target.resolveSibling(s".${UUID.randomUUID()}.tmp")
    try {
      val channel = FileChannel.open(temporary, util.Set.of(WRITE, CREATE_NEW), mode("rw-------"))
      try {
        val bytes = ByteBuffer.wrap(content)
        while (bytes.hasRemaining) channel.write(bytes)
        channel.force(true)
      } finally channel.close()
      Files.createLink(target, temporary)
      sync(target.getParent)
    } catch {
      case _: LocalAlreadyExists => throw new FileAlreadyExistsException(target.toString)
    } finally Files.deleteIfExists(temporary)
  }

  private def makeFolder(folder: LocalPath): Unit = if (!Files.isDirectory(folder)) {
    Files.createDirectories(folder, mode("rwx------"))
    sync(root)
  }

  private def mode(text: String) = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(text))

  private def sync(folder: LocalPath): Unit = {
    val channel = FileChannel.open(folder)
    try channel.force(true) finally channel.close()
  }
}

/** On any file system that Spark takes for checkpoints. */
private[spark] class HadoopFactFiles(root: Path, hadoop: Configuration) extends FactFiles {
  private lazy val files = CheckpointFileManager.create(root, hadoop)
  private lazy val system = root.getFileSystem(hadoop)
  private def path(kind: String, name: String): Path = new Path(new Path(root, kind), name)

  override def exists: Boolean = files.exists(root)

  override def numbers(kind: String): Seq[Long] = FactFiles.sorted(
    try files.list(new Path(root, kind)).toSeq.map(_.getPath.getName)
    catch { case _: FileNotFoundException => Nil })

  /** Object stores know neither owners nor modes: there, all who may write to the checkpoint count as this user. */
  override def bytes(kind: String, name: String): Array[Byte] = {
    val file = path(kind, name)
    val (owner, user) = (system.getFileStatus(file).getOwner, UserGroupInformation.getCurrentUser.getShortUserName)
    require(owner.isEmpty || owner == user,
      s"$file belongs to user $owner, and this driver runs as $user: only the driver's user may modify its queries")
    val stream = files.open(file)
    try stream.readAllBytes() finally stream.close()
  }

  override def write(kind: String, number: Long, content: Array[Byte]): Unit = {
    val target = path(kind, number.toString)
    files.mkdirs(target.getParent)
    val stream = files.createAtomic(target, overwriteIfPossible = false)
    try {
      stream.write(content)
      stream.hsync()
      stream.close()
    } catch {
      case error: Throwable => stream.cancel(); throw error
    }
  }
}

private[spark] object LocalFactFiles {
  /** `root`: its path is one of this machine, also if its scheme is rhino. */
  def of(root: Path): LocalFactFiles = new LocalFactFiles(Paths.get(root.toUri.getPath))
}
