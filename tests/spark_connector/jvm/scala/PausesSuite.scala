package rhino.spark

import java.util.UUID

import rhino.spark.Plans.{exchange, scan, stateful}
import rhino.spark.driver.FailurePauses
import rhino.spark.wire.Schema.Fields

class PausesSuite extends Suite {
  test("a query that failed is tried again after its pause, others at once") {
    var nowMs = 0L
    val pauses = new FailurePauses(() => nowMs * 1000000L)
    val (bad, good) = (new FakeRun("bad"), new FakeRun("good"))
    var tried = Seq.empty[UUID]
    def attempt(run: FakeRun): Unit = pauses.attempt(run) {
      tried :+= run.runId
      if (run eq bad) throw new IllegalStateException("unreadable")
    }
    Seq(bad, good, bad, good).foreach(attempt)
    expect(tried, Seq(bad.runId, good.runId, good.runId))
    nowMs = 10000
    attempt(bad)
    expect(tried.last, bad.runId)
  }

  test("an ended query reports its last batch although it could not be followed just before") {
    val run = new FakeRun("q").planning(stateful(0, exchange(scan)), batch = 0)
    val its = new Followed(run)
    its.look()
    run.unreadable = true
    run.logging(0)
    expect(its.look(), Nil)
    run.unreadable = false
    its.runs = Nil
    expect(its.look().map(_.has("batch_logged")), Seq(true, false))
  }
}
