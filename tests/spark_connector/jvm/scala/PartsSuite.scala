package rhino.spark

import scala.jdk.CollectionConverters._

import org.sparkproject.connect.protobuf.ByteString

import rhino.spark.driver.ManagerStream
import rhino.spark.store.StoreId
import rhino.spark.wire.Schema
import rhino.spark.wire.Schema.{message, Fields, Message}

class PartsSuite extends Suite {
  private val PartBytes = 1024 * 1024

  private def batch(stores: Int): Message = {
    val versions = (0 until stores).map(partition => StoreId("job", 0, partition, "default").version(5, "id"))
    message("DriverEvent", "batch_logged" -> message("BatchLogged", "job" -> "job", "versions" -> versions))
  }

  test("a small event is sent as it is") {
    val event = batch(10)
    expect(ManagerStream.inParts(event).toSeq, Seq(event))
  }

  test("the parts of a large event are the event") {
    val event = batch(100000)
    val parts = ManagerStream.inParts(event).map(_.sub("part")).toSeq
    val field = Schema.descriptor("Part").findFieldByName("data")
    val data = parts.map(_.getField(field).asInstanceOf[ByteString])
    expect(ByteString.copyFrom(data.asJava), event.toByteString)
    expect(data.init.map(_.size).toSet, Set(PartBytes))
    expect(parts.map(_.bool("last")), Seq.fill(parts.size - 1)(false) :+ true)
  }
}
