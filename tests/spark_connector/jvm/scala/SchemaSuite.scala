package rhino.spark

import rhino.spark.store.StoreId
import rhino.spark.wire.Schema
import rhino.spark.wire.Schema.{copy, message, Fields}

class SchemaSuite extends Suite {

  test("messages are built and read by the names of their fields") {
    val version = StoreId("job", 1, 2, "default").version(5, "id")
    expect(version.sub("store").string("job"), "job")
    expect(version.sub("store").int("partition"), 2)
    expect(version.sub("version").long("version"), 5L)
    expect(version.has("store"), true)
  }

  test("repeated fields are sequences") {
    val group = message("TaskGroup", "task_group" -> 1, "operators" -> Seq(1L, 3L), "partitions" -> 2)
    expect(group.longs("operators"), Seq(1L, 3L))
  }

  test("a copy has new values and the others as they were") {
    val changed = copy(message("TaskGroup", "task_group" -> 1, "partitions" -> 2), "partitions" -> 3)
    expect((changed.int("task_group"), changed.int("partitions")), (1, 3))
  }

  test("unknown names are errors that name them") {
    fails[NoSuchElementException]("no message Nothing")(message("Nothing"))
    fails[IllegalArgumentException]("TaskGroup has no field colour")(message("TaskGroup", "colour" -> 1))
    fails[NoSuchElementException]("Sidecar/Fly")(Schema.method("Sidecar", "Fly"))
  }

  test("methods have the full names of their services") {
    expect(Schema.method("Sidecar", "Attach").getFullMethodName, "rhino.v1.Sidecar/Attach")
    expect(Schema.method("Sidecar", "Attach").getType.toString, "SERVER_STREAMING")
    expect(Schema.method("HandoverManager", "DriverSession").getType.toString, "BIDI_STREAMING")
  }
}
