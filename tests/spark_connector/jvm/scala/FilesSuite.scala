package rhino.spark

import java.io.IOException
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import rhino.spark.driver.CheckpointFiles
import rhino.spark.files.{LateSnapshots, LocalFolders, Place, StateWriter, UserCheckpoint}
import rhino.spark.sidecar.{Greeter, SidecarReports, SocketOwner}
import rhino.spark.store.StoreId

class FilesSuite extends Suite {
  private val store = StoreId("job", 0, 4, "default")
  private val other = StoreId("other", 0, 4, "default")

  private def checkpoint(authority: String) = new UserCheckpoint(authority, new Configuration(false))

  test("a checkpoint on rhino names the user's file system") {
    val path = new Path("rhino://hdfs@namenode:8020/ckpt/q/offsets/3")
    expect(checkpoint("hdfs@namenode:8020").outside(path).toString, "hdfs://namenode:8020/ckpt/q/offsets/3")
    expect(checkpoint("file").outside(new Path("rhino://file/ckpt/q")).toString, "file:/ckpt/q")
  }

  test("a checkpoint on rhino cannot name rhino again") {
    fails[IllegalArgumentException]("rhino://rhino@x", "such as file or hdfs")(checkpoint("rhino@x"))
  }

  test("files and folders of a store are with the sidecar") {
    expect(Place.of(new Path("rhino:///job/0/4/default/12_a.zip")): Place, Place.StateFile(store, "12_a.zip"))
    expect(Place.of(new Path("rhino:///job/0/4/default/SSTs")): Place, Place.StateFolder(store, "SSTs"))
    expect(Place.of(new Path("rhino:///job/0")): Place, Place.Nowhere)
  }

  test("in a checkpoint, logs are outside and the folder of a store is on both sides") {
    val its = checkpoint("file")
    val conf = new Configuration(false)
    expect(Place.of(new Path("rhino://file/q/offsets/3"), its, conf): Place, Place.Outside(its))
    val folder = Place.of(new Path("rhino://file/q/state/0/4"), its, conf)
    expect(folder.isInstanceOf[Place.StoreFolder], true)
  }

  test("a snapshot of a query that used the folder before is refused") {
    val late = new LateSnapshots(knownMax = 10)
    late.check(store, "12_a.changelog")
    late.check(store, "12_a.zip")
    late.check(other, "12_unknown.zip")
    fails[IOException]("12_a.zip is a snapshot of query job", "now one of query other")(late.check(other, "12_a.zip"))
  }

  test("only the newest versions are remembered") {
    val late = new LateSnapshots(knownMax = 2)
    for (id <- Seq("a", "b", "c")) late.check(store, s"12_$id.changelog")
    late.check(other, "12_a.zip")
    fails[IOException]("12_b.zip")(late.check(other, "12_b.zip"))
  }

  test("the files of a checkpoint that belong to a batch are those without state") {
    val root = Files.createTempDirectory("checkpoint")
    val names = Seq(
      "metadata", "offsets/5", "offsets/6", "offsets/7", "commits/6", "commits/7", "sources/0/0",
      "sources/1/deep/9.compact",
      "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_a", "state/0/0/_metadata/schema", "state/0/0/3_a.zip",
      "state/0/1/_metadata/schema", "other/x", ".metadata.crc")
    names.foreach { name =>
      Files.createDirectories(root.resolve(name).getParent)
      Files.write(root.resolve(name), name.getBytes)
    }
    val path = new Path(root.toUri)
    val found = CheckpointFiles.read(path.getFileSystem(new Configuration(false)), path, 7)
    expect(found.map(_._1).toSet, Set(
      "metadata", "offsets/6", "offsets/7", "commits/7", "sources/0/0", "sources/1/deep/9.compact",
      "state/0/_metadata/v2/0",
      "state/0/_stateSchema/default/0_a", "state/0/0/_metadata/schema"))
    expect(found.forall { case (name, data) => new String(data) == name }, true)
    fails[IOException]("offsets/8")(CheckpointFiles.read(path.getFileSystem(new Configuration(false)), path, 8))
  }

  test("a name that cannot be kept comes with the way out") {
    expect(StateWriter.wayOut("12.delta").contains("RocksDBStateStoreProvider"), true)
    expect(StateWriter.wayOut("12.zip").contains("checkpointFormatVersion=2"), true)
  }

  test("a socket of this user or of root is used, and nobody else's") {
    val folder = Files.createTempDirectory("rhino")
    val socket = Files.createFile(folder.resolve("a.sock"))
    try {
      def owner: Long = Files.getAttribute(socket, "unix:uid").asInstanceOf[Int].toLong
      expect(SocketOwner.mine, owner)
      SocketOwner.check(socket.toString, owner)
      if (owner == 0) {
        SocketOwner.check(socket.toString, 12345) // a sidecar of root
        Files.setAttribute(socket, "unix:uid", 12345)
        Files.setAttribute(folder, "unix:uid", 12345)
      }
      fails[IOException](s"$socket belongs to the Unix user $owner, and this process runs as user ${owner + 1}")(
        SocketOwner.check(socket.toString, owner + 1))
    } finally {
      Files.delete(socket)
      Files.delete(folder)
    }
    SocketOwner.check("/nowhere/rhino.sock", 0)
  }

  test("a socket in a folder that others can write to is not used") {
    val folder = Files.createTempDirectory("rhino")
    val below = Files.createDirectory(folder.resolve("below"))
    try for ((mode, writable) <- Seq("rwxr-xr-x" -> false, "rwxr-xrwx" -> true, "rwxrwxr-x" -> true)) {
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString(mode))
      if (SocketOwner.mine == 0) Files.setAttribute(folder, "unix:gid", 12345)
      for (socket <- Seq(folder.resolve("a.sock"), below.resolve("a.sock")))
        if (writable)
          fails[IOException](s"can write to $folder, so they could")(
            SocketOwner.check(socket.toString, SocketOwner.mine))
        else SocketOwner.check(socket.toString, SocketOwner.mine)
    } finally {
      Files.delete(below)
      Files.delete(folder)
    }
    fails[IOException]("can write to /tmp, so they could")(SocketOwner.check("/tmp/a.sock", SocketOwner.mine))
  }

  test("a greeter answers with a token or with a reason") {
    expect(Greeter.tokenIn(Array[Byte](1) ++ Array.fill(16)(7: Byte), "s").size, 16)
    fails[IOException]("refuses this user: no")(Greeter.tokenIn(Array[Byte](0) ++ "no".getBytes, "s"))
    for (wrong <- Seq(Array.empty[Byte], Array[Byte](1), Array.fill(17)(2: Byte), Array.fill(18)(1: Byte)))
      fails[IOException]("no answer of a sidecar's greeter")(Greeter.tokenIn(wrong, "s"))
  }

  test("a lock beside a local folder replaces the one of a former application, and a missing folder is no error") {
    val above = Files.createTempDirectory("rhino")
    val folder = Files.createDirectory(above.resolve("spark-1"))
    val missing = above.resolve("nowhere").resolve("spark-2")
    try {
      LocalFolders.hold(Seq(missing, folder))
      LocalFolders.hold(Seq(folder))
      expect(above.toFile.list.toSet, Set("spark-1", "spark-1.rhino-lock"))
    } finally above.toFile.listFiles.foreach(_.delete())
  }

  test("a report about a sidecar survives its way to the driver") {
    val report = SidecarReports.Report("7", "worker-a", "attached")
    expect(SidecarReports.read(report.plain), Some(report))
    expect(SidecarReports.read("something else"), None)
    expect(SidecarReports.read(Array("7", "true")), None)
  }
}
