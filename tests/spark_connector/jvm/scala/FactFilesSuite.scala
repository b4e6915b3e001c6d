package rhino.spark

import java.nio.file.{Files, Path => LocalPath}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import rhino.spark.modify.{FactFiles, HadoopFactFiles, LocalFactFiles}

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
      expect((files.exists, files.changedMs("records"), files.numbers("records")), (false, 0L, Nil))
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
      expect(files.owner("outcomes", "12"), System.getProperty("user.name"))
      val age = System.currentTimeMillis() - files.changedMs("outcomes")
      expect(age >= -1000 && age < 60000, true)
    }
  }

  test("bytes are read as they were written") {
    each { (files, root) =>
      val bytes = Array.tabulate(100000)(place => (place * 7).toByte)
      files.write("tables", 4, bytes, lasting = true)
      expect(files.bytes("tables", 4).toSeq, bytes.toSeq)
      expect(root.resolve("tables").toFile.list.toSeq.filterNot(_.startsWith(".")), Seq("4"))
      fails[FileAlreadyExistsException]("4")(files.write("tables", 4, bytes.take(1), lasting = true))
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
}
