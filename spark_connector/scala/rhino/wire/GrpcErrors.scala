package rhino.spark.wire

import org.sparkproject.connect.grpc.StatusRuntimeException

private[rhino] object GrpcErrors {

  /** Code, description and cause of a failed call, in one line. */
  def describe(error: StatusRuntimeException): String = {
    val status = error.getStatus
    val cause = Option(status.getCause).map(c => s": ${c.getMessage}").getOrElse("")
    s"${status.getCode}: ${Option(status.getDescription).getOrElse("")}$cause"
  }
}
