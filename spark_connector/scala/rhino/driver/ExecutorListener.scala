package rhino.spark.driver

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorRemoved}

import rhino.spark.sidecar.SidecarReports
import rhino.spark.wire.Schema.{message, Message}

/** Tells the locations and the manager which executors there are, and where. Events of one executor stay in order. */
private[spark] class ExecutorListener(executors: Executors, send: Message => Unit)
  extends SparkListener with Logging {
  import ExecutorListener.{changed, gone}
  private val missing = mutable.Set.empty[String] // executors that have reported that they have no sidecar

  override def onExecutorAdded(event: SparkListenerExecutorAdded): Unit = synchronized {
    executors.added(event.executorId, event.executorInfo.executorHost)
    tell(event.executorId)
  }

  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit = synchronized {
    executors.removed(event.executorId)
    missing -= event.executorId
    send(gone(event.executorId, event.reason))
  }

  /** An executor reports its worker, or that it has no sidecar. */
  def reported(report: SidecarReports.Report): Unit = synchronized {
    if (report.worker.isEmpty) {
      executors.reported(report.executor, SidecarReport.Missing)
      missing += report.executor
      logWarning(report.text)
      send(gone(report.executor, report.text))
    } else {
      executors.reported(report.executor, SidecarReport.Attached(report.worker))
      // The end of a warning is a warning, too: PySpark's default level hides INFO.
      if (missing.remove(report.executor)) logWarning(report.text) else logInfo(report.text)
      tell(report.executor)
    }
  }

  private def tell(id: String): Unit = executors.usable.all.find(_.id == id).foreach(its => send(changed(its)))
}

private[driver] object ExecutorListener {
  def changed(executor: UsableExecutor): Message = event(
    "executor_id" -> executor.id, "host" -> executor.host, "worker_id" -> executor.worker.getOrElse(""))

  private def gone(id: String, reason: String): Message =
    event("executor_id" -> id, "removed" -> java.lang.Boolean.TRUE, "reason" -> reason)

  private def event(fields: (String, Any)*): Message =
    message("DriverEvent", "executor_changed" -> message("ExecutorChanged", fields: _*))
}
