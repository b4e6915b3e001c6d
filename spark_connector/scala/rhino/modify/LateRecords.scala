package rhino.spark.modify

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

/**
 * Lets a batch begin a little later, so that a record which is nearly ready is in force with it. The goal is that the
 * first batch begins one batch and 0.2 s after the command at the latest, and that it is no longer than the others. A
 * check may have waited for a slot of an executor until the last batch left one free: then the record would come too
 * late with the batch after this one. Or the code of the next batch is prepared. That takes several times as long
 * beside a batch, and a batch whose code is not ready is longer by more than the wait.
 *
 * @param nowMs a clock
 * @param holds whether `hold` is called between batches
 */
private[spark] class LateRecords(nowMs: () => Long, holds: => Boolean) {
  import LateRecords._

  private class Record(val patience: Patience) {
    @volatile var sinceMs: Long = nowMs()
    @volatile var held = false
    @volatile var prepares = false
    val (due, decided) = (new CompletableFuture[Unit], new CompletableFuture[Unit])

    def ageMs: Long = nowMs() - sinceMs
  }
  @volatile private var present = Option.empty[Record]

  /** For the thread that decides about records. */
  def during(patience: Patience)(decide: => Unit): Unit = {
    val its = new Record(patience)
    present = Some(its)
    try decide
    finally {
      present = None
      its.decided.complete(())
    }
  }

  /** For the same thread. The record has had a table, which may have taken long to read: batches wait once more. */
  def restart(): Unit = present.foreach { its =>
    its.sinceMs = nowMs()
    its.held = false
  }

  /** For the same thread. Returns when the code is ready, or when a batch does not wait for it any longer. */
  def awaitCode(ready: CompletableFuture[_]): Unit = present.foreach { its =>
    its.prepares = true
    if (!holds) its.due.completeOnTimeout((), UnheldMs - its.ageMs, TimeUnit.MILLISECONDS)
    CompletableFuture.anyOf(ready, its.due).get()
  }

  /**
   * For the thread of the query, between two batches. A check may take many batches, so each record is waited for once.
   *
   * @param batchMs how long it usually is from the start of a batch to that of the next one
   */
  def hold(batchMs: => Long): Unit = present.filter(its => its.ageMs >= its.patience.lateMs).foreach { its =>
    if (!its.held) {
      its.held = true
      val begunMs = nowMs()
      val limitMs = its.sinceMs + batchMs + AllowedMs
      def leftMs: Long = limitMs.min(begunMs + (if (its.prepares) MaxMs else its.patience.checkMs)) - nowMs()
      while (leftMs > 0 && !awaited(its, leftMs)) ()
    }
    if (its.prepares) {
      its.due.complete(())
      awaited(its, AcceptMs)
    }
  }

  private def awaited(its: Record, ms: Long): Boolean =
    try { its.decided.get(ms, TimeUnit.MILLISECONDS); true }
    catch { case _: TimeoutException => false }
}

private[spark] object LateRecords {
  /** How old a record is when batches begin to wait for it, and how long they wait for its check. */
  case class Patience(lateMs: Long, checkMs: Long)

  /** In addition to one batch. The rest of 0.2 s passed before the record was found, or passes with its outcome. */
  val AllowedMs = 140L
  private val MaxMs = 1000L
  private val AcceptMs = 50L // it writes a file
  private val UnheldMs = 120L // until a record goes on without its code, if no batch can be held

  /** With the batch after the next one, a young one is in time, too. Its code may take long to load. */
  val ofFunction: Patience = Patience(lateMs = 120, checkMs = 100)
  /** Its table is read by jobs, which take several times as long beside a batch. */
  val ofTable: Patience = Patience(lateMs = 0, checkMs = MaxMs)
  val ofOthers: Patience = Patience(lateMs = 0, checkMs = 100)
}
