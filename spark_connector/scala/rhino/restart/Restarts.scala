package rhino.spark.restart

import java.nio.file.Paths
import java.util.UUID

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.apache.hadoop.fs.{Path => HadoopPath}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.seam.Internals

/** The gates of this driver's queries. Python calls `close`, `open` and `isAtBoundary` (query_evolution/replace). */
private[spark] object Restarts extends Logging {
  private val PollMs = 20L
  private val gates = TrieMap.empty[UUID, Gate] // by run
  private val rights = new Rights(its => Gate.letGo(its))

  @volatile private var thread = Option.empty[Thread]

  /** The look has a thread of its own: others that want to run a query wait for it. */
  def start(): Unit = synchronized {
    val made = new Thread(() => poll(), "rhino-rights")
    made.setDaemon(true)
    thread = Some(made)
    made.start()
  }

  def stop(): Unit = synchronized {
    thread.foreach(_.interrupt())
    thread = None
  }

  private def poll(): Unit =
    try while (!Thread.interrupted()) {
      try look(Internals.runningQueries)
      catch { case NonFatal(error) => logWarning("the rights to run queries cannot be looked at; trying again", error) }
      RunLocks.sign()
      Thread.sleep(PollMs)
    } catch { case _: InterruptedException => () }

  /** For the thread of a query, before it plans a batch. Throws InterruptedException when the query is stopped. */
  def pass(query: UUID, batch: Long): Unit =
    Internals.runningQueries.find(_.id == query).foreach(stream => of(stream).pass(batch))

  def close(runId: String): Unit = running(runId).foreach(stream => of(stream).close())
  def open(runId: String): Unit = gates.get(UUID.fromString(runId)).foreach(_.open())

  /** Also if the run has ended. */
  def isAtBoundary(runId: String): Boolean =
    running(runId).isEmpty || gates.get(UUID.fromString(runId)).exists(_.atBoundary)

  /**
   * Every 20 ms, so it touches no file itself. Runs that are not supervised get and lose the right to run as they come
   * and go.
   */
  def look(active: Seq[StreamExecution]): Unit = {
    for (stream <- active if stream.isActive) {
      val gate = of(stream)
      // One that has just been stopped must not take the right again.
      rights.claim(stream.runId)(if (stream.isActive) gate.claim())
    }
    val runs = active.map(_.runId).toSet
    gates --= gates.keySet.filterNot(runs)
    rights.retain(runs)
  }

  /** The query of a rehearsal has no state of its own: its checkpoint is in the folder `restarts` of another one. */
  def isRehearsal(checkpoint: String): Boolean = {
    val names = Paths.get(new HadoopPath(checkpoint).toUri.getPath)
    Option(names.getParent).exists(_.endsWith(s"${Gate.Folder}/rehearsals"))
  }

  private def running(runId: String): Option[StreamExecution] =
    Internals.runningQueries.find(_.runId == UUID.fromString(runId))

  private def of(stream: StreamExecution): Gate = gates.getOrElseUpdate(
    stream.runId, {
      val folder = Gate.folder(new HadoopPath(stream.resolvedCheckpointRoot))
      folder.foreach(rights.add(stream.runId, _))
      new Gate(folder, () => stream.isActive)
    })
}
