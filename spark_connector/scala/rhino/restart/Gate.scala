package rhino.spark.restart

import java.nio.file.{Files, Path, Paths}

import org.apache.hadoop.fs.{Path => HadoopPath}

import rhino.spark.settings.IntegrationMode

/**
 * Every batch of a run passes here before it is planned, on the thread of the query. A closed gate parks it: its
 * offsets may be logged, and nothing of it has run.
 */
private[spark] class Gate(checkpoint: Option[Path], active: () => Boolean = () => true) {
  private var closed = false
  private var passed = Option.empty[Long]

  /** Throws InterruptedException when the query is stopped while it is parked. */
  def pass(batch: Long): Unit = synchronized {
    if (!passed.exists(_ >= batch)) { // a batch is analysed several times
      while (closed) {
        // Hadoop may have swallowed the interrupt of a stop, when it waited for a shell command before this.
        if (!active()) throw new InterruptedException("the query has been stopped at its gate")
        wait(Gate.LookMs)
      }
      checkpoint.foreach(Gate.checkRight)
      passed = Some(batch)
    }
  }

  def close(): Unit = synchronized { closed = true }

  def open(): Unit = synchronized {
    closed = false
    notifyAll()
  }

  /** No batch runs, and none will until the gate is opened. */
  def atBoundary: Boolean = synchronized {
    closed && passed.forall(batch => checkpoint.exists(its => Files.exists(its.resolve("commits").resolve(s"$batch"))))
  }

  /** Takes the right to run for a query that is not supervised, as soon as its checkpoint needs one. */
  def claim(): Unit = checkpoint.filter(Gate.hasRight).foreach(its => Gate.take(its))
}

private[spark] object Gate {
  val Folder = "restarts"
  private val Modifications = "modifications"
  private val LookMs = 10L
  private val Unsupervised = "unsupervised"

  /** The folder of the checkpoint, if this machine sees it as one. */
  def folder(checkpoint: HadoopPath): Option[Path] = {
    val uri = checkpoint.toUri
    val local = Option(uri.getScheme).forall(_ == "file") ||
      (uri.getScheme == IntegrationMode.Scheme && uri.getAuthority == "file")
    if (local) Some(Paths.get(uri.getPath)) else None
  }

  private def lock(checkpoint: Path): String = checkpoint.resolve(Folder).resolve("locks").resolve("run").toString

  /**
   * Whether others may decide about the query: a supervisor, or a command that withdraws a modification. A checkpoint
   * that was never supervised nor modified has no right to run, and is run as ever.
   */
  def hasRight(checkpoint: Path): Boolean =
    Seq(Folder, Modifications).exists(its => Files.isDirectory(checkpoint.resolve(its)))

  def take(checkpoint: Path): Boolean = {
    val file = lock(checkpoint)
    RunLocks.holder(file).nonEmpty || RunLocks.take(file, Unsupervised, Unsupervised)
  }

  def letGo(checkpoint: Path): Unit = RunLocks.letGo(lock(checkpoint), Unsupervised)

  /** Takes the right to run, if there is one. Throws IllegalStateException if another process has it. */
  def checkRight(checkpoint: Path): Unit =
    if (hasRight(checkpoint) && !take(checkpoint)) throw new IllegalStateException(refusal(checkpoint))

  /**
   * Before a query is started, because it would log offsets before it comes to its gate. Throws
   * IllegalArgumentException if another process has the right to run it.
   */
  def checkStart(location: HadoopPath): Unit = folder(location).filter(hasRight).foreach { checkpoint =>
    val mine = RunLocks.holder(lock(checkpoint)).nonEmpty
    if (!take(checkpoint)) throw new IllegalArgumentException(refusal(checkpoint))
    if (!mine) letGo(checkpoint) // the run takes it, if there will be one
  }

  private def refusal(checkpoint: Path): String =
    s"another process runs the query of $checkpoint, and no two may: ${lock(checkpoint)} says which one. Stop it, or " +
      "start this query by query_evolution.supervise, which takes over"
}
