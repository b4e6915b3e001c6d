package rhino.spark

import java.util.concurrent.{CompletableFuture, CountDownLatch}

import rhino.spark.modify.LateChecks

/** Which batch waits for the check of a record. One that waits although it should not would wait for ever. */
class LateChecksSuite extends Suite {
  private class Checked(maxMs: Long = Long.MaxValue) {
    @volatile private var now = 1000L
    private val checks = new LateChecks(() => now, maxMs)
    private val (begun, end) = (new CountDownLatch(1), new CountDownLatch(1))
    private val running = CompletableFuture.runAsync { () =>
      checks.during(1) { begun.countDown(); end.await(); throw new IllegalStateException("disk") }
    }
    begun.await()

    def later(ms: Long): Unit = now += ms
    def batch(): Unit = checks.awaitLate()

    /** A batch that waits already. */
    def waiting(): Thread = {
      val its = new Thread(() => batch())
      its.start()
      while (its.getState != Thread.State.TIMED_WAITING) {
        assert(its.isAlive, "it does not wait")
        Thread.sleep(1)
      }
      its
    }

    /** The check ends, by an error. */
    def finish(): Unit = { end.countDown(); running.exceptionally(_ => null).join(); () }
  }

  test("a batch waits for a record that would be late with the next one, until its check has ended") {
    val its = new Checked
    its.later(LateChecks.LateMs - 1)
    its.batch()
    its.later(1)
    val batch = its.waiting()
    its.finish()
    batch.join()
    its.later(1000)
    its.batch()
  }

  test("a check is waited for once, and not for long") {
    val its = new Checked
    its.later(LateChecks.LateMs)
    val batch = its.waiting()
    its.batch()
    its.finish()
    batch.join()
    val slow = new Checked(maxMs = 1)
    slow.later(LateChecks.LateMs)
    slow.batch()
    slow.finish()
  }
}
