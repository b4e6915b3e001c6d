package rhino.spark

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.file.{Files, Path}
import java.util.concurrent.{CompletableFuture, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}

import org.apache.spark.sql.execution.streaming.state.StateStoreId

import rhino.spark.replace.CommittedStores
import rhino.spark.restart.{Gate, Restarts, RunLocks}

/** The gate between two batches, and the right to run a query. */
class RestartSuite extends Suite {
  private def checkpoint(): Path = Files.createTempDirectory("restarts")

  /** Another process that has the lock. */
  private def locked(file: Path): Process = {
    val code = "import fcntl, sys, time; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX); " +
      "print('locked', flush=True); time.sleep(600)"
    val other = new ProcessBuilder("python3", "-c", code, s"$file").start()
    expect(new BufferedReader(new InputStreamReader(other.getInputStream)).readLine(), "locked")
    other
  }

  private def commit(checkpoint: Path, batch: Long): Unit = {
    Files.createDirectories(checkpoint.resolve("commits"))
    Files.createFile(checkpoint.resolve("commits").resolve(s"$batch"))
  }

  test("a lock belongs to one holder until it lets go") {
    val file = checkpoint().resolve("locks/run").toString
    expect(RunLocks.holder(file), "")
    expect(RunLocks.take(file, "a", "x"), true)
    expect(RunLocks.take(file, "a", "x"), true)
    expect(RunLocks.take(file, "b", "x"), false)
    RunLocks.letGo(file, "b")
    expect(RunLocks.holder(file), "a")
    RunLocks.letGo(file, "a")
    expect(RunLocks.take(file, "b", "x"), true)
    RunLocks.letGo(file, "b")
  }

  test("a lock is the same one by each way to its folder") {
    val folder = checkpoint()
    val link = Files.createSymbolicLink(checkpoint().resolve("link"), folder)
    expect(RunLocks.take(s"$folder/run", "a", "x"), true)
    expect(RunLocks.holder(s"$link/run"), "a")
    expect(RunLocks.take(s"$link/run", "b", "x"), false)
    RunLocks.letGo(s"$link/run", "a")
    expect(RunLocks.holder(s"$folder/run"), "")
  }

  test("a file system that hangs stops nobody at the locks of another checkpoint") {
    val (stuck, free) = (checkpoint(), checkpoint())
    val file = stuck.resolve("run") // to open a pipe for writing hangs until there is a reader
    expect(new ProcessBuilder("mkfifo", s"$file").start().waitFor(), 0)
    val hangs = new Thread(() => try RunLocks.take(s"$file", "a", "x") catch { case _: IOException => () })
    hangs.setDaemon(true)
    hangs.start()
    while (!Files.exists(stuck.resolve("guard"))) Thread.`yield`()
    try {
      val taken = CompletableFuture.supplyAsync(() => RunLocks.take(s"$free/run", "a", "x"))
      expect(taken.get(30, TimeUnit.SECONDS), true)
      expect(hangs.isAlive, true)
      RunLocks.letGo(s"$free/run", "a")
    } finally Files.newInputStream(file).close()
    hangs.join()
  }

  test("the file of a lock says which process has it") {
    val file = checkpoint().resolve("locks/run")
    RunLocks.take(file.toString, "a", "supervised")
    val text = Files.readString(file)
    expect(text.contains(s"\"pid\":${ProcessHandle.current.pid}"), true)
    expect(text.contains("\"says\":\"supervised\""), true)
  }

  /** Seen by another process: Linux tells nobody of the locks of its own process. */
  private def isLocked(file: Path): Boolean = {
    val code = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n" +
      "except BlockingIOError: sys.exit(9)"
    new ProcessBuilder("python3", "-c", code, s"$file").inheritIO().start().waitFor() == 9
  }

  test("a lock whose file cannot be written is not kept from its own process") {
    val file = Files.createSymbolicLink(checkpoint().resolve("run"), Path.of("/dev/full"))
    for (_ <- 1 to 2) fails[IOException]("No space left")(RunLocks.take(s"$file", "a", "x"))
    Files.delete(file)
    expect(RunLocks.take(s"$file", "a", "x"), true)
    RunLocks.letGo(s"$file", "a")
  }

  test("the owner of a lock gives signs of life, and may lose the lock to somebody who takes over") {
    val at = checkpoint()
    val file = at.resolve("restarts/locks/run")
    def inode: Long = Files.getAttribute(file, "unix:ino").asInstanceOf[Long]
    def signNs: Long = Files.getLastModifiedTime(file).to(TimeUnit.NANOSECONDS)
    expect(RunLocks.take(s"$file", "a", "supervised"), true)
    val (text, begun) = (Files.size(file), Files.getLastModifiedTime(file))
    val deadline = System.nanoTime() + 30000000000L
    while (Files.getLastModifiedTime(file) == begun && System.nanoTime() < deadline) RunLocks.sign()
    expect(Files.getLastModifiedTime(file) == begun, false)
    expect(Files.size(file), text)
    expect(isLocked(file), true)
    expect(RunLocks.takeOver(s"$file", "b", "supervised", inode + 1, signNs), false)
    expect(RunLocks.takeOver(s"$file", "b", "supervised", inode, signNs - 1), false)
    expect(RunLocks.holder(s"$file"), "a")
    val (former, silent) = (inode, signNs)
    expect(RunLocks.takeOver(s"$file", "b", "supervised", former, silent), true)
    expect(RunLocks.takeOver(s"$file", "c", "supervised", former, silent), false)
    expect(RunLocks.takeOver(s"$file", "c", "supervised", inode, silent), false)
    expect(RunLocks.holder(s"$file"), "b")
    expect(RunLocks.take(s"$file", "a", "supervised"), false)
    RunLocks.letGo(s"$file", "b")
  }

  test("a lock ends with its channel, which an interrupted thread closes") {
    val file = checkpoint().resolve("locks/run")
    expect(RunLocks.take(s"$file", "a", "supervised"), true)
    def signing = Thread.getAllStackTraces.keySet.asScala.filter(_.getName == "rhino-sign")
    val deadline = System.nanoTime() + 30000000000L
    while (RunLocks.holder(s"$file") == "a" && System.nanoTime() < deadline) {
      RunLocks.sign()
      signing.foreach(_.interrupt())
    }
    expect(RunLocks.holder(s"$file"), "")
    expect(RunLocks.take(s"$file", "b", "supervised"), true)
    expect(isLocked(file), true)
    RunLocks.letGo(s"$file", "b")
  }

  test("a process that has lost the right to another one begins no batch") {
    val at = checkpoint()
    val file = at.resolve("restarts/locks/run")
    Files.createDirectories(at.resolve("restarts"))
    val gate = new Gate(Some(at))
    gate.pass(1)
    expect(RunLocks.holder(s"$file"), "unsupervised")
    Files.delete(file)
    Files.createFile(file)
    val other = locked(file)
    try {
      fails[IllegalStateException]("another process runs the query")(gate.pass(2))
      expect(RunLocks.holder(s"$file"), "")
    } finally other.destroyForcibly()
    other.waitFor()
    gate.pass(2)
    Gate.letGo(at)
  }

  test("a closed gate is at a boundary only when the batch that has passed it is committed") {
    val at = checkpoint()
    val gate = new Gate(Some(at))
    gate.pass(7)
    expect(gate.atBoundary, false)
    gate.close()
    gate.pass(7) // Spark analyses it again
    expect(gate.atBoundary, false)
    commit(at, 7)
    expect(gate.atBoundary, true)
    gate.open()
    expect(gate.atBoundary, false)
    gate.pass(8)
    gate.close()
    expect(gate.atBoundary, false)
  }

  test("the next batch waits at a closed gate until it is opened, or the query is stopped") {
    val gate = new Gate(Some(checkpoint()))
    gate.close()
    expect(gate.atBoundary, true)
    @volatile var (passed, stopped) = (false, false)
    def query(): Thread = {
      val made = new Thread(() =>
        try { gate.pass(1); passed = true }
        catch { case _: InterruptedException => stopped = true })
      made.start()
      while (made.getState != Thread.State.TIMED_WAITING) Thread.sleep(1)
      made
    }
    val first = query()
    expect(gate.atBoundary, true)
    first.interrupt()
    first.join()
    expect((passed, stopped), (false, true))
    val second = query()
    gate.open()
    second.join()
    expect(passed, true)
  }

  test("a stopped query leaves a closed gate also if the interrupt was lost") {
    @volatile var (active, stopped) = (true, false)
    val gate = new Gate(Some(checkpoint()), () => active)
    gate.close()
    val query = new Thread(() =>
      try gate.pass(1)
      catch { case _: InterruptedException => stopped = true })
    query.start()
    while (query.getState != Thread.State.TIMED_WAITING) Thread.sleep(1)
    active = false
    query.join()
    expect(stopped, true)
  }

  test("a checkpoint that was never supervised nor modified needs no right, and another gives it to one process") {
    for (kind <- Seq("restarts", "modifications")) {
      val at = checkpoint()
      val gate = new Gate(Some(at))
      gate.pass(0)
      gate.claim()
      expect(Files.exists(at.resolve("restarts")), false)
      Files.createDirectories(at.resolve(kind))
      gate.claim()
      val lock = at.resolve("restarts/locks/run").toString
      expect(RunLocks.holder(lock), "unsupervised")
      gate.pass(1)
      Gate.letGo(at)
      expect(RunLocks.holder(lock), "")
    }
  }

  test("the look at the rights has a thread of its own until the plugin ends") {
    def alive: Boolean = Thread.getAllStackTraces.keySet.asScala.exists(_.getName == "rhino-rights")
    Restarts.start()
    expect(alive, true)
    Restarts.stop()
    val deadline = System.nanoTime() + 30000000000L
    while (alive && System.nanoTime() < deadline) Thread.`yield`()
    expect(alive, false)
  }

  test("a rehearsal is known by the place of its checkpoint") {
    expect(Restarts.isRehearsal("file:/ckpt/q/restarts/rehearsals/1f"), true)
    expect(Restarts.isRehearsal("/ckpt/q/restarts/rehearsals/1f"), true)
    expect(Restarts.isRehearsal("file:/ckpt/restarts"), false)
    expect(Restarts.isRehearsal("rhino://file/ckpt/q"), false)
  }

  test("a commit log entry names a store of each partition") {
    val joined = """[["a","b","c","d"],["e","f","g","h"]]"""
    val entry = s"""v2
{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["x"],["y"]],"1":$joined}}"""
    expect(CommittedStores.ids(entry, 0, "default"), Seq(0 -> "x", 1 -> "y"))
    expect(CommittedStores.ids(entry, 1, "right-keyToNumValues"), Seq(0 -> "c", 1 -> "g"))
    expect(CommittedStores.ids(entry, 1, "default"), Nil)
    expect(CommittedStores.ids(entry, 2, "default"), Nil)
    expect(CommittedStores.ids("v1\n{\"nextBatchWatermarkMs\":0}", 0, "default"), Nil)
  }

  test("an executor looks for a version that is on its node, first that of the same partition") {
    val at = checkpoint()
    Files.createDirectories(at.resolve("commits"))
    Files.writeString(at.resolve("metadata"), """{"id":"q"}""")
    Files.writeString(at.resolve("commits/9"), "v2\n{}")
    Files.writeString(at.resolve("commits/10"), """v2
{"stateUniqueIds":{"0":[["x"],["y"],["z"]]}}""")
    Files.writeString(at.resolve("commits/.10.crc"), "")
    def found(partition: Int, here: String*): Option[String] = {
      val like = StateStoreId(s"file:$at/restarts/rehearsals/1f/state", 0, partition)
      CommittedStores.first(new HadoopPath(s"file:$at"), like, new Configuration)(its => here.contains(its.id))
        .map(its => s"${its.store}/${its.version}_${its.id}")
    }
    expect(found(1, "x", "y", "z"), Some("q/0/1/default/11_y"))
    expect(found(1, "x", "z"), Some("q/0/2/default/11_z"))
    expect(found(1, "x"), Some("q/0/0/default/11_x"))
    expect(found(1), None)
  }
}
