package rhino.spark.driver

import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorRemoved}

import rhino.spark.wire.Schema.{message, Message}

/** Tells the locations and the manager which executors live. */
private[driver] class ExecutorListener(locations: DesiredLocations, send: Message => Unit) extends SparkListener {
  import ExecutorListener.changed

  override def onExecutorAdded(event: SparkListenerExecutorAdded): Unit = {
    locations.executorAdded(event.executorId, event.executorInfo.executorHost)
    send(changed(event.executorId, event.executorInfo.executorHost, removed = false, ""))
  }

  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit = {
    val host = locations.executorRemoved(event.executorId).getOrElse("")
    send(changed(event.executorId, host, removed = true, event.reason))
  }
}

private[driver] object ExecutorListener {
  def changed(id: String, host: String, removed: Boolean, reason: String): Message =
    message("DriverEvent", "executor_changed" -> message(
      "ExecutorChanged", "executor_id" -> id, "host" -> host,
      "removed" -> java.lang.Boolean.valueOf(removed), "reason" -> reason))
}
