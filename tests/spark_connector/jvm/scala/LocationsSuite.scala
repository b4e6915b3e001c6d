package rhino.spark

import java.util.UUID

import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}

import rhino.spark.Plans.{exchange, scan, stateful}
import rhino.spark.driver.DesiredLocations
import rhino.spark.wire.Schema.{message, Message}

class LocationsSuite extends Suite {
  private val run = new FakeRun("job").planning(stateful(1, stateful(0, exchange(scan))), batch = 0)

  private def desired(generation: Long, epoch: Long, hosts: Seq[String]*): Message = message(
    "DesiredLocations", "job" -> "job", "generation" -> generation, "configuration_epoch" -> epoch,
    "locations" -> hosts.zipWithIndex.map { case (its, partition) =>
      message("Location", "task_group" -> 0, "partition" -> partition, "hosts" -> its)
    })

  private def store(operator: Long, partition: Int, runId: UUID = run.runId) =
    StateStoreProviderId(StateStoreId("file:/ckpt/q/state", operator, partition), runId)

  private def locations(): DesiredLocations = {
    val its = new DesiredLocations(() => Seq(run))
    Seq("1" -> "a", "2" -> "b", "3" -> "c").foreach { case (id, host) => its.executorAdded(id, host) }
    its
  }

  test("a store is located on the first desired host, whatever its operator in the task group") {
    val its = locations()
    its.update(desired(1, 1, Seq("b", "a"), Seq("c")))
    expect(its.locate(store(0, 0)), Some(("b", "2")))
    expect(its.locate(store(1, 0)), Some(("b", "2")))
    expect(its.locate(store(0, 1)), Some(("c", "3")))
  }

  test("Spark decides about what the map does not have") {
    val its = locations()
    expect(its.locate(store(0, 0)), None)
    its.update(desired(1, 1, Seq("b")))
    expect(its.locate(store(0, 5)), None)
    expect(its.locate(store(9, 0)), None)
    expect(its.locate(store(0, 0, UUID.randomUUID())), None)
  }

  test("a host without an executor is passed over") {
    val its = locations()
    its.update(desired(1, 1, Seq("b", "a")))
    its.executorRemoved("2")
    expect(its.locate(store(0, 0)), Some(("a", "1")))
    its.executorRemoved("1")
    expect(its.locate(store(0, 0)), None)
  }

  test("an executor without a sidecar is passed over until it has one") {
    val its = locations()
    its.update(desired(1, 1, Seq("b", "a")))
    its.executorReaches("2", sidecar = false)
    expect(its.locate(store(0, 0)), Some(("a", "1")))
    expect(its.reachable("job"), false)
    its.executorReaches("2", sidecar = true)
    expect(its.locate(store(0, 0)), Some(("b", "2")))
    expect(its.reachable("job"), true)
  }

  test("executors of one host share its partitions") {
    val its = locations()
    its.executorAdded("4", "b")
    its.update(desired(1, 1, Seq("b"), Seq("b")))
    expect(Seq(0, 1).map(partition => its.locate(store(0, partition))), Seq(Some(("b", "2")), Some(("b", "4"))))
  }

  test("an outdated map is ignored, a newer generation counts from its first epoch") {
    val its = locations()
    its.update(desired(2, 5, Seq("b")))
    its.update(desired(2, 4, Seq("a")))
    its.update(desired(1, 9, Seq("a")))
    expect(its.followed("job"), Some((2L, 5L)))
    its.update(desired(3, 1, Seq("c")))
    expect(its.locate(store(0, 0)), Some(("c", "3")))
  }

  test("a job without a map is not reachable") {
    expect(locations().reachable("job"), false)
  }
}
