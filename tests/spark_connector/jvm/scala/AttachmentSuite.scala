package rhino.spark

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}

import org.sparkproject.connect.grpc.ServerServiceDefinition
import org.sparkproject.connect.grpc.inprocess.{InProcessChannelBuilder, InProcessServerBuilder}
import org.sparkproject.connect.grpc.stub.{ServerCalls, StreamObserver}

import org.apache.spark.SparkConf

import rhino.spark.settings.Settings
import rhino.spark.sidecar.Attachment
import rhino.spark.wire.Schema.{message, method, Message}

class AttachmentSuite extends Suite {
  private val PatienceS = 30

  test("a session lasts although the first call in it fails") {
    val sessions = new LinkedBlockingQueue[StreamObserver[Message]]
    val attach: ServerCalls.ServerStreamingMethod[Message, Message] = (_, client) => {
      client.onNext(message("SessionInfo", "session_id" -> s"${sessions.size}", "worker_id" -> "a"))
      sessions.add(client)
    }
    val name = InProcessServerBuilder.generateName()
    val sidecar = InProcessServerBuilder.forName(name).addService(
      ServerServiceDefinition.builder("rhino.v1.Sidecar")
        .addMethod(method("Sidecar", "Attach"), ServerCalls.asyncServerStreamingCall(attach)).build()).build().start()
    val channel = InProcessChannelBuilder.forName(name).build()
    val socket = Files.createTempDirectory("attachment").resolve("sidecar.sock").toString
    val settings = Settings(new SparkConf(false).set(Settings.Manager, "h:1"))
    val attachment =
      new Attachment(channel, socket, "app/1", settings, () => throw new IOException("the node is starved"))
    try {
      attachment.start()
      sessions.poll(PatienceS, TimeUnit.SECONDS).onNext(
        message("SessionInfo", "session_id" -> "0", "worker_id" -> "b"))
      expect(attachment.await(PatienceS)(_.workerId == "b").map(_.id), Some("0"))
      expect(sessions.size, 0) // no other one
    } finally {
      attachment.close()
      channel.shutdownNow()
      sidecar.shutdownNow()
    }
  }
}
