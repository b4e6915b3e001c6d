package rhino.spark

import scala.collection.mutable

import org.apache.spark.scheduler.{SparkListenerExecutorAdded, SparkListenerExecutorRemoved}
import org.apache.spark.scheduler.cluster.ExecutorInfo

import rhino.spark.driver.{ExecutorListener, Executors, MapWorker}
import rhino.spark.sidecar.SidecarReports.Report
import rhino.spark.wire.Schema.{Fields, Message}

class ExecutorListenerSuite extends Suite {

  private class Scene {
    val leaving = mutable.Set.empty[String]
    val executors = new Executors(leaving)
    private val sent = mutable.Buffer.empty[Message]
    private val listener = new ExecutorListener(executors, event => sent += event.sub("executor_changed"))

    def added(id: String): Unit =
      listener.onExecutorAdded(
        SparkListenerExecutorAdded(0, id, new ExecutorInfo(s"node-$id", 1, Map.empty[String, String])))
    def removed(id: String): Unit = listener.onExecutorRemoved(SparkListenerExecutorRemoved(0, id, "decommissioned"))
    def look(): Unit = listener.look()
    def reported(id: String, worker: String): Unit = listener.reported(Report(id, worker, s"about $id"))
    def on(worker: String): Seq[String] = executors.usable.on(MapWorker(worker, ""))

    /** The reports to the manager since the last call: executor, host, worker, removed. */
    def told(): Seq[(String, String, String, Boolean)] = {
      val all = sent.toList
      sent.clear()
      all.map(e => (e.string("executor_id"), e.string("host"), e.string("worker_id"), e.bool("removed")))
    }
  }

  test("an executor comes, reports its worker, and goes") {
    val its = new Scene
    its.added("1")
    expect(its.told(), Seq(("1", "node-1", "", false)))
    its.reported("1", "a")
    expect(its.told(), Seq(("1", "node-1", "a", false)))
    expect(its.on("a"), Seq("1"))
    its.removed("1")
    expect(its.told(), Seq(("1", "", "", true)))
    expect(its.on("a"), Nil)
  }

  test("a decommissioned executor is gone at once, whatever it reports, and others stay") {
    val its = new Scene
    Seq("1", "2").foreach { id => its.added(id); its.reported(id, "a") }
    its.look()
    its.told()
    its.leaving += "1"
    its.look()
    its.look()
    expect(its.told(), Seq(("1", "", "", true)))
    its.reported("1", "a")
    expect((its.told(), its.on("a")), (Nil, Seq("2")))
    its.removed("1")
    its.leaving -= "1"
    its.added("1")
    expect(its.on("a"), Seq("2"))
    its.reported("1", "a")
    expect(its.on("a"), Seq("1", "2"))
  }

  test("a report before Spark's own event counts from that event on") {
    val its = new Scene
    its.reported("1", "a")
    expect(its.told(), Nil)
    expect(its.on("a"), Nil)
    its.added("1")
    expect(its.told(), Seq(("1", "node-1", "a", false)))
    expect(its.on("a"), Seq("1"))
  }

  test("an executor without a sidecar counts as none, until it has one of perhaps another worker") {
    val its = new Scene
    its.added("1")
    its.reported("1", "a")
    its.told()
    its.reported("1", "")
    expect(its.told(), Seq(("1", "", "", true)))
    expect(its.on("a"), Nil)
    its.reported("1", "b")
    expect(its.told(), Seq(("1", "node-1", "b", false)))
    expect((its.on("a"), its.on("b")), (Nil, Seq("1")))
  }

  test("an executor that never had a sidecar is not told as one") {
    val its = new Scene
    its.reported("1", "")
    its.told()
    its.added("1")
    expect(its.told(), Nil)
    expect(its.executors.usable.all, Nil)
  }
}
