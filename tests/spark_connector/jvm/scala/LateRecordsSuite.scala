package rhino.spark

import java.util.concurrent.{CompletableFuture, CountDownLatch}

import rhino.spark.modify.LateRecords

/** Which batch waits for a record, and for how long. */
class LateRecordsSuite extends Suite {
  private val BatchMs = 1000L

  private class Decided(patience: LateRecords.Patience, holds: Boolean = true) {
    @volatile private var now = 1000L
    private val records = new LateRecords(() => now, holds)
    private val (begun, checked) = (new CountDownLatch(1), new CountDownLatch(1))
    private val code = new CompletableFuture[Unit]
    @volatile var readsTable = false
    @volatile private var prepares = false
    private val running = CompletableFuture.runAsync { () =>
      records.during(patience) {
        begun.countDown()
        checked.await()
        if (readsTable) records.restart()
        prepares = true
        records.awaitCode(code)
      }
    }
    begun.await()

    def later(ms: Long): Unit = now += ms

    /** Between two batches. */
    def boundary(): Unit = records.hold(BatchMs)

    /** A boundary at which the query waits already. */
    def waiting(): Thread = {
      val its = new Thread(() => boundary())
      its.start()
      while (its.getState != Thread.State.TIMED_WAITING) {
        assert(its.isAlive, "it does not wait")
        Thread.sleep(1)
      }
      its
    }

    def check(): Unit = {
      checked.countDown()
      while (!prepares) Thread.sleep(1)
    }

    def fail(): Unit = { code.completeExceptionally(new IllegalStateException("disk")); () }
    def isDecided: Boolean = running.isDone
    def prepare(): Unit = { code.complete(()); () }
    def end(): Unit = { running.exceptionally(_ => null).join(); () }
  }

  test("a batch waits for a function that would be late with the next one, until its check has ended") {
    val its = new Decided(LateRecords.ofFunction)
    its.later(LateRecords.ofFunction.lateMs - 1)
    its.boundary()
    its.later(1)
    val batch = its.waiting()
    its.prepare()
    its.check()
    batch.join()
    its.end()
    its.later(1000)
    its.boundary()
  }

  test("a batch waits for its code, also if the record has just been found") {
    val its = new Decided(LateRecords.ofOthers)
    val batch = its.waiting()
    its.check()
    its.prepare()
    batch.join()
    its.end()
  }

  test("a batch waits no longer than the goal allows, and the record goes on without its code") {
    val its = new Decided(LateRecords.ofOthers)
    its.check()
    its.later(BatchMs + LateRecords.AllowedMs)
    assert(!its.isDecided, "no batch has asked")
    its.boundary()
    its.end()
  }

  test("a check is waited for once, and once more when its table has been read") {
    val slow = new Decided(LateRecords.ofOthers)
    slow.later(1)
    val batch = slow.waiting()
    slow.later(LateRecords.ofOthers.checkMs)
    batch.join()
    slow.boundary()
    slow.prepare()
    slow.check()
    slow.end()
    val table = new Decided(LateRecords.ofTable)
    table.readsTable = true
    table.later(5000)
    table.boundary() // it is too late for a wait
    table.check()
    val after = table.waiting()
    table.prepare()
    after.join()
    table.end()
  }

  test("where no batch can be held, a record goes on after a while, and when its code cannot be prepared") {
    val unheld = new Decided(LateRecords.ofOthers, holds = false)
    unheld.check()
    unheld.end()
    val failed = new Decided(LateRecords.ofOthers)
    failed.check()
    failed.fail()
    failed.end()
  }
}
