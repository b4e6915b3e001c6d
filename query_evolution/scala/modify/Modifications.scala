package rhino.spark.modify

import java.util.UUID

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.seam.Internals

import rhino.spark.modify.records.Modification

/** The modifications of this driver's queries. */
private[spark] object Modifications extends Logging {
  private val PollMs = 200L
  private val RemotePolls = 10 // a checkpoint that is not on a local file system is looked at every 2 s
  private val queries = TrieMap.empty[UUID, ModifiedQuery] // by query, of its present run
  @volatile private var executors: () => Seq[(String, String)] = () => Nil
  @volatile private var thread = Option.empty[Thread]
  private var round = 0L

  /** `its`: host and id of each executor. */
  def start(its: () => Seq[(String, String)]): Unit = synchronized {
    executors = its
    val made = new Thread(() => poll(), "rhino-modifications")
    made.setDaemon(true)
    thread = Some(made)
    made.start()
  }

  def stop(): Unit = synchronized {
    thread.foreach(_.interrupt())
    thread = None
    settle(Internals.runningQueries)
    queries.clear()
  }

  /** For the thread of a query that plans a batch. Nil for a query without Rhino's plugin. */
  def at(query: UUID, batch: Long): Seq[Modification] =
    if (thread.isEmpty) Nil
    else Internals.runningQueries.find(_.id == query).map(of(_).at(batch)).getOrElse(Nil)

  /** The time of the batch that is planned, which a batch has again when it is tried again. */
  def batchMs(query: UUID, batch: Long): Long =
    Internals.runningQueries.find(_.id == query).map(_.lastExecution).filter(_.currentBatchId == batch)
      .map(_.offsetSeqMetadata.batchTimestampMs)
      .getOrElse(throw new IllegalStateException(s"query $query: batch $batch is planned without a time"))

  /** The former run of a query is settled before its next one reads the checkpoint. */
  private def of(stream: StreamExecution): ModifiedQuery = synchronized {
    queries.get(stream.id) match {
      case Some(same) if same.stream.runId == stream.runId => same
      case former =>
        former.foreach(_.ended())
        val made = new ModifiedQuery(stream, executors)
        queries.put(stream.id, made)
        made
    }
  }

  private def settle(active: Seq[StreamExecution]): Unit = {
    val runs = active.map(_.runId).toSet
    queries.values.filterNot(query => runs(query.stream.runId)).foreach { query =>
      attempt(query)(_.ended())
      queries.remove(query.stream.id, query)
    }
  }

  private def poll(): Unit =
    try while (!Thread.interrupted()) {
      val active = Internals.runningQueries
      settle(active)
      queries.values.foreach(query => if (query.isLocal || round % RemotePolls == 0) attempt(query)(_.look()))
      round += 1
      Thread.sleep(PollMs)
    } catch { case _: InterruptedException => () }

  private def attempt(query: ModifiedQuery)(act: ModifiedQuery => Unit): Unit =
    try act(query)
    catch {
      case error: InterruptedException => throw error
      case NonFatal(error) =>
        logWarning(s"query ${query.stream.id}: its modifications cannot be looked at; trying again", error)
    }
}
