package rhino.spark.driver

import java.io.FileNotFoundException

import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

/**
 * Reads the files of a query checkpoint that belong to a batch, for an archive: everything but state, and of the logs
 * the entries that a restart after this batch needs.
 */
private[spark] object CheckpointFiles {
  private val TotalMax = 64L << 20

  /** Paths below `root`, and content. Throws `IllegalStateException` if they are too large, and `IOException`. */
  def read(fs: FileSystem, root: Path, batch: Long): Seq[(String, Array[Byte])] = {
    val operators = list(fs, new Path(root, "state")).filter(_.isDirectory).map(_.getPath)
    val folders = new Path(root, "sources") +:
      operators.flatMap(its => Seq("_metadata", "_stateSchema", "0/_metadata").map(new Path(its, _)))
    val before = if (batch > 0) Seq(s"offsets/${batch - 1}") else Nil // Spark reads it at a start
    val logs = Seq("metadata", s"offsets/$batch", s"commits/$batch") ++ before
    val found = logs.map(name => fs.getFileStatus(new Path(root, name))) ++ folders.flatMap(below(fs, _))
    val total = found.map(_.getLen).sum
    if (total > TotalMax) {
      throw new IllegalStateException(s"the checkpoint at $root has $total bytes beside its state: at most $TotalMax " +
        "go to an archive")
    }
    val base = fs.makeQualified(root).toUri
    found.map(file => base.relativize(fs.makeQualified(file.getPath).toUri).getPath -> content(fs, file))
  }

  private def below(fs: FileSystem, folder: Path): Seq[FileStatus] =
    list(fs, folder).flatMap(its => if (its.isDirectory) below(fs, its.getPath) else Seq(its))

  private def list(fs: FileSystem, folder: Path): Seq[FileStatus] =
    try fs.listStatus(folder).toSeq.filterNot(_.getPath.getName.startsWith("."))
    catch { case _: FileNotFoundException => Nil }

  private def content(fs: FileSystem, file: FileStatus): Array[Byte] = {
    val stream = fs.open(file.getPath)
    try stream.readNBytes(file.getLen.toInt + 1) finally stream.close()
  }
}
