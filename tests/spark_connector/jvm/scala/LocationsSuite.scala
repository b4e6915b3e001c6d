package rhino.spark

import java.util.UUID

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}

import rhino.spark.Plans.{exchange, scan, stateful}
import rhino.spark.driver.{DesiredLocations, Executors, SidecarReport}
import rhino.spark.driver.SidecarReport.{Attached, Missing}
import rhino.spark.wire.Schema.{message, Message}

class LocationsSuite extends Suite {
  private val run = new FakeRun("job").planning(stateful(1, stateful(0, exchange(scan))), batch = 0)

  /** A map of workers for each partition of task group 0. Worker "w" has the host "host-w". */
  private def desired(generation: Long, epoch: Long, workers: Seq[String]*): Message = {
    val table = workers.flatten.distinct
    message(
      "DesiredLocations",
      "job" -> "job",
      "generation" -> generation,
      "configuration_epoch" -> epoch,
      "locations" -> workers.zipWithIndex.map { case (its, partition) =>
        val indexes = its.map(table.indexOf(_))
        message("Location", "task_group" -> 0, "partition" -> partition, "worker_indexes" -> indexes)
      },
      "workers" -> table.map(id => message("DesiredWorker", "worker_id" -> id, "host" -> s"host-$id")))
  }

  private def store(operator: Long, partition: Int, runId: UUID = run.runId) =
    StateStoreProviderId(StateStoreId("file:/ckpt/q/state", operator, partition), runId)

  /** Executors with their reports. Executor "1" is on Spark's host "node-1". */
  private class Scene(reports: (String, SidecarReport)*) {
    val leaving = mutable.Set.empty[String]
    val executors = new Executors(leaving)
    private val locations = new DesiredLocations(() => Seq(run), executors, () => leaving.foreach(executors.left))
    reports.foreach { case (id, report) => add(id, report) }

    def add(id: String, report: SidecarReport): Unit = {
      executors.added(id, s"node-$id")
      executors.reported(id, report)
    }
    def update(map: Message): Unit = locations.update(map)
    def at(partition: Int, operator: Long = 0): Option[(String, String)] = locations.locate(store(operator, partition))
    def of(id: StateStoreProviderId): Option[(String, String)] = locations.locate(id)
    def executorsOf(partitions: Int): Seq[String] = (0 until partitions).map(at(_).get._2)
    def followed: Option[(Long, Long)] = locations.followed("job")
    def reachable: Boolean = locations.reachable("job")
  }

  private def threeWorkers = new Scene("1" -> Attached("a"), "2" -> Attached("b"), "3" -> Attached("c"))

  test("a store is located on the first desired worker, whatever its operator in the task group") {
    val its = threeWorkers
    its.update(desired(1, 1, Seq("b", "a"), Seq("c")))
    expect(its.at(0), Some(("node-2", "2")))
    expect(its.at(0, operator = 1), Some(("node-2", "2")))
    expect(its.at(1), Some(("node-3", "3")))
  }

  test("Spark decides about what the map does not have") {
    val its = threeWorkers
    expect(its.at(0), None)
    its.update(desired(1, 1, Seq("b")))
    expect(its.at(5), None)
    expect(its.at(0, operator = 9), None)
    expect(its.of(store(0, 0, UUID.randomUUID())), None)
  }

  test("a worker without an executor is passed over") {
    val its = threeWorkers
    its.update(desired(1, 1, Seq("b", "a")))
    its.executors.removed("2")
    expect(its.at(0), Some(("node-1", "1")))
    its.executors.removed("1")
    expect(its.at(0), None)
    its.add("4", Attached("b"))
    expect(its.at(0), Some(("node-4", "4")))
  }

  test("a decommissioned executor is passed over from the next question on") {
    val its = threeWorkers
    its.update(desired(1, 1, Seq("b", "a"), Seq("c")))
    expect(its.at(0), Some(("node-2", "2")))
    its.leaving += "2"
    expect((its.at(0), its.at(1)), (Some(("node-1", "1")), Some(("node-3", "3"))))
    expect(its.reachable, false)
    its.leaving ++= Seq("1", "3")
    expect((its.at(0), its.at(1)), (None, None))
  }

  test("an executor without a sidecar is passed over until it has one") {
    val its = threeWorkers
    its.update(desired(1, 1, Seq("b", "a")))
    its.executors.reported("2", Missing)
    expect(its.at(0), Some(("node-1", "1")))
    expect(its.reachable, false)
    its.executors.reported("2", Attached("b"))
    expect(its.at(0), Some(("node-2", "2")))
    expect(its.reachable, true)
  }

  test("an executor belongs to the worker of its sidecar, whatever their hosts are called") {
    val its = new Scene
    its.executors.added("1", "host-a")
    its.executors.added("2", "host-b")
    its.update(desired(1, 1, Seq("a")))
    its.executors.reported("1", Attached("b"))
    its.executors.reported("2", Attached("a"))
    expect(its.at(0), Some(("host-b", "2")))
    its.executors.reported("2", Attached("c"))
    expect(its.at(0), None)
  }

  test("an executor counts by its host only until it has reported") {
    val its = new Scene
    its.update(desired(1, 1, Seq("a")))
    its.executors.added("1", "host-a")
    expect(its.at(0), Some(("host-a", "1")))
    its.add("2", Attached("a"))
    expect(its.at(0), Some(("node-2", "2")))
    its.executors.reported("1", Missing)
    its.executors.removed("2")
    expect(its.at(0), None)
  }

  test("a report may come before Spark's own event of the executor") {
    val its = new Scene
    its.update(desired(1, 1, Seq("a")))
    its.executors.reported("1", Attached("a"))
    expect(its.at(0), None)
    its.executors.added("1", "node-1")
    expect(its.at(0), Some(("node-1", "1")))
  }

  test("executors of one worker share its virtual nodes, and the loss of one moves only its own") {
    val its = new Scene("1" -> Attached("a"), "2" -> Attached("a"), "3" -> Attached("a"))
    its.update(desired(1, 1, Seq.fill(12)(Seq("a")): _*))
    val before = its.executorsOf(12)
    expect(before.groupBy(identity).map { case (id, its) => id -> its.size }, Map("1" -> 4, "2" -> 4, "3" -> 4))
    its.executors.removed("2")
    val now = its.executorsOf(12)
    expect(before.zip(now).filter { case (was, is) => was != is }.map(_._1).toSet, Set("2"))
    its.add("4", Attached("a"))
    its.update(desired(1, 2, Seq.fill(12)(Seq("a", "b")): _*))
    val joined = its.executorsOf(12)
    expect(now.zip(joined).filter { case (was, is) => was != is }.map(_._2).toSet, Set("4"))
    expect(joined.count(_ == "4"), 4)
  }

  test("an outdated map is ignored, a newer generation counts from its first epoch") {
    val its = threeWorkers
    its.update(desired(2, 5, Seq("b")))
    its.update(desired(2, 4, Seq("a")))
    its.update(desired(1, 9, Seq("a")))
    expect(its.followed, Some((2L, 5L)))
    its.update(desired(3, 1, Seq("c")))
    expect(its.at(0), Some(("node-3", "3")))
  }

  test("a job without a map is not reachable") {
    expect(threeWorkers.reachable, false)
  }
}
