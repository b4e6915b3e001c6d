package rhino.spark

import java.nio.file.{Files, NoSuchFileException, Path => LocalPath}
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import rhino.spark.modify.records.{FactFiles, HadoopFactFiles, LocalFactFiles}
import rhino.spark.store.OwnFiles

/** The files of the folder `modifications`, as this machine and as Hadoop write them. */
class FactFilesSuite extends Suite {
  private val hadoop = new Configuration(false)
  hadoop.set(
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager")

  private def each(check: (FactFiles, LocalPath) => Unit): Unit = for (local <- Seq(true, false)) {
    val root = Files.createTempDirectory("facts").resolve("modifications")
    val files = if (local) LocalFactFiles.of(new Path(s"rhino://file$root")) else new HadoopFactFiles(
      new Path(s"file:$root"), hadoop)
    check(files, root)
  }

  test("without a modification there is nothing, and nothing is created") {
    each { (files, root) =>
      expect((files.exists, files.numbers("records")), (false, Nil))
      expect(Files.exists(root), false)
    }
  }

  test("what is written is read, by its number") {
    each { (files, root) =>
      files.write("outcomes", 12, "twelve")
      files.write("outcomes", 3, "three")
      Files.writeString(root.resolve("outcomes").resolve("note.txt"), "of a person")
      expect((files.exists, files.numbers("outcomes"), files.numbers("records")), (true, Seq(3L, 12L), Nil))
      expect(files.text("outcomes", 12), "twelve")
    }
  }

  test("bytes are read as they were written") {
    each { (files, root) =>
      val bytes = Array.tabulate(100000)(place => (place * 7).toByte)
      files.write("tables", 4, bytes)
      expect(files.bytes("tables", 4).toSeq, bytes.toSeq)
      expect(root.resolve("tables").toFile.list.toSeq.filterNot(_.startsWith(".")), Seq("4"))
      fails[FileAlreadyExistsException]("4")(files.write("tables", 4, bytes.take(1)))
    }
  }

  test("a file is written once") {
    each { (files, _) =>
      files.write("bindings", 7, "first")
      fails[FileAlreadyExistsException]("7")(files.write("bindings", 7, "second"))
      expect((files.text("bindings", 7), files.numbers("bindings")), ("first", Seq(7L)))
    }
  }

  test("on this machine no other file is left") {
    val root = Files.createTempDirectory("facts")
    val files = new LocalFactFiles(root)
    files.write("bindings", 7, "first")
    fails[FileAlreadyExistsException]("7")(files.write("bindings", 7, "second"))
    expect(root.resolve("bindings").toFile.list.toSeq, Seq("7"))
  }

  test("only this user reads and writes what is written on this machine") {
    val root = Files.createTempDirectory("facts").resolve("modifications")
    new LocalFactFiles(root).write("bindings", 7, "first")
    val modes = Seq(root, root.resolve("bindings"), root.resolve("bindings").resolve("7"))
      .map(path => PosixFilePermissions.toString(Files.getPosixFilePermissions(path)))
    expect(modes, Seq("rwx------", "rwx------", "rw-------"))
  }

  test("a file that another user has written or could have written is not read") {
    val checkpoint = Files.createTempDirectory("facts")
    val (root, files) = (checkpoint.resolve("modifications"), new LocalFactFiles(checkpoint.resolve("modifications")))
    files.write("records", 1, "mine")
    val (record, folder) = (root.resolve("records").resolve("1"), root.resolve("records"))
    def refused(message: String): Unit = fails[IllegalArgumentException](message)(files.bytes("records", 1))
    def during(path: LocalPath, mode: String)(check: => Unit): Unit = {
      val former = Files.getPosixFilePermissions(path)
      Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(mode))
      try check finally Files.setPosixFilePermissions(path, former)
    }
    for (mode <- Seq("rw-rw-r--", "rw----rw-")) during(record, mode)(refused(s"the mode of $record lets others write"))
    for (open <- Seq(folder, root, checkpoint)) during(open, "rwxrwxrwx")(refused(s"can write to $open, so they could"))
    if (OwnFiles.mine == 0) for (path <- Seq(record, folder, checkpoint)) {
      Files.setAttribute(path, "unix:uid", 12345)
      try refused(s"$path belongs to the Unix user 12345") finally Files.setAttribute(path, "unix:uid", 0)
    }
    Files.createSymbolicLink(folder.resolve("2"), record)
    fails[IllegalArgumentException]("2: is a link")(files.bytes("records", 2))
    fails[NoSuchFileException]("records/3")(files.bytes("records", 3))
    expect(files.text("records", 1), "mine")
  }
}
