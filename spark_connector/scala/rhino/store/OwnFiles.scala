package rhino.spark.store

import java.nio.file.{Files, LinkOption, Path, Paths}
import java.nio.file.LinkOption.NOFOLLOW_LINKS

import scala.jdk.CollectionConverters._

/**
 * Files that no other Unix user can have written, for content that becomes code or a decision of this process. The
 * rules are those of rhino_core/foreign.py.
 */
private[rhino] object OwnFiles {
  private val Root = 0L
  private val ByOthers = 2L
  private val ByGroup = 16L
  private val Sticky = 512L

  /** The effective Unix user of this process. */
  lazy val mine: Long =
    Files.readAllLines(Paths.get("/proc/self/status")).asScala.collectFirst {
      case line if line.startsWith("Uid:") => line.split("\\s+")(2).toLong
    }.getOrElse(throw new IllegalStateException("/proc/self/status has no line 'Uid:'"))

  /**
   * Throws IllegalArgumentException if another user has written the file, or could, and IOException if it cannot be
   * read. Nobody else can exchange a file in a closed folder, so that what is checked is what is read.
   */
  def read(path: Path): Array[Byte] = {
    requireClosed(path.toAbsolutePath.getParent)
    require(Files.isRegularFile(path, NOFOLLOW_LINKS) || !Files.exists(path, NOFOLLOW_LINKS),
      s"$path: is a link or a folder, and a file is expected")
    require(attribute(path, "uid", NOFOLLOW_LINKS) == mine, s"$path belongs to the Unix user " +
      s"${attribute(path, "uid", NOFOLLOW_LINKS)}, and this driver runs as user $mine: only the driver's user may " +
      "modify its queries")
    require((attribute(path, "mode", NOFOLLOW_LINKS) & (ByOthers | ByGroup)) == 0,
      s"the mode of $path lets others write to it: look at its content, then run chmod go-w $path")
    val stream = Files.newInputStream(path, NOFOLLOW_LINKS)
    try stream.readAllBytes() finally stream.close()
  }

  /**
   * Throws IllegalArgumentException if another user than this process's or root can change what is in the folder. The
   * folders above must be closed to others as well, or sticky, as /tmp is.
   */
  def requireClosed(folder: Path): Unit = {
    val real = folder.toRealPath()
    above(real).foreach { place =>
      val owner = attribute(place, "uid")
      require(owner == mine || owner == Root, s"$place belongs to the Unix user $owner, and this driver runs as user " +
        s"$mine: only the driver's user may modify its queries")
      require(!isOpen(place, direct = place == real), s"others than the Unix user $mine can write to $place, so they " +
        s"could replace what is in $folder: look who has written what is there, then run chmod go-w $place")
    }
  }

  /** A folder, and all above it. */
  def above(folder: Path): Iterator[Path] = Iterator.iterate(folder)(_.getParent).takeWhile(_ != null)

  /** Whether other users can replace what is in the folder. `direct`: the file itself is in it. */
  def isOpen(folder: Path, direct: Boolean): Boolean = {
    val (mode, group) = (attribute(folder, "mode"), attribute(folder, "gid"))
    // A user's private group has the user's number.
    val writers = if (group == Root || group == attribute(folder, "uid")) ByOthers else ByOthers | ByGroup
    (mode & writers) != 0 && (direct || (mode & Sticky) == 0)
  }

  /** Throws IOException: there is no such file. */
  def attribute(path: Path, name: String, options: LinkOption*): Long =
    Files.getAttribute(path, s"unix:$name", options: _*).asInstanceOf[Int].toLong
}
