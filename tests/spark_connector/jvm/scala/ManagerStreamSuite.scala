package rhino.spark

import java.net.{InetAddress, ServerSocket}

import org.sparkproject.connect.grpc.{Grpc, InsecureChannelCredentials, Status, StatusRuntimeException}

import rhino.spark.driver.ManagerStream

class ManagerStreamSuite extends Suite {
  test("a manager that accepts the connection and says nothing is one that does not answer") {
    val silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress)
    val channel =
      Grpc.newChannelBuilder(s"127.0.0.1:${silent.getLocalPort}", InsecureChannelCredentials.create()).build()
    try {
      val stream = new ManagerStream(channel, Nil, _ => ())
      expect(stream.welcome(patienceMs = 50), None)
      stream.reason() match {
        case error: StatusRuntimeException =>
          expect(error.getStatus.getCode, Status.Code.UNAVAILABLE)
          expect(error.getMessage.contains("50 ms"), true)
        case other => throw new AssertionError(s"$other")
      }
    } finally {
      channel.shutdownNow()
      silent.close()
    }
  }
}
