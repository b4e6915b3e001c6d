package rhino.spark.modify

import java.util.concurrent.{CountDownLatch, TimeUnit}

/**
 * Lets a batch wait for the check of a record that would come in force too late with the batch after it. Most such
 * checks have waited for a slot of an executor until the batch before left one free, so they are nearly done. A batch
 * waits only once for a check: one that reads a table may go on for many batches.
 *
 * @param nowMs a clock
 * @param maxMs how long a batch waits at most
 */
private[spark] class LateChecks(nowMs: () => Long, maxMs: Long = 100) {
  private case class Check(number: Long, begunMs: Long, ended: CountDownLatch)
  @volatile private var present = Option.empty[Check]
  private var waitedFor = 0L // number of the newest one

  /** For the thread that checks records. */
  def during(number: Long)(check: => Unit): Unit = {
    val its = Check(number, nowMs(), new CountDownLatch(1))
    present = Some(its)
    try check
    finally {
      present = None
      its.ended.countDown()
    }
  }

  /** For the thread of the query, before it plans a batch. */
  def awaitLate(): Unit =
    present.filter(its => its.number > waitedFor && nowMs() - its.begunMs >= LateChecks.LateMs).foreach { its =>
      waitedFor = its.number
      its.ended.await(maxMs, TimeUnit.MILLISECONDS)
    }
}

private[spark] object LateChecks {
  /** A batch that is planned earlier after the record was found leaves it to the next one: that is in time, too. */
  val LateMs = 120L
}
