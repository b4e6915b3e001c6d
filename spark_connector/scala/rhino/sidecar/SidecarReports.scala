package rhino.spark.sidecar

import scala.util.control.NonFatal

import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging

/**
 * Reports to the driver which worker this executor belongs to, whenever it has attached to a sidecar, and that it has
 * been without one for a while.
 */
private[rhino] class SidecarReports(context: PluginContext, host: String)
  extends Thread("rhino-sidecar-reports") with Logging {
  private val CheckEveryMs = 500L
  private val AwayS = 3.0 // longer than a restart of the sidecar takes
  private var reported = Option.empty[String] // worker id, or "" without a sidecar; None: nothing yet
  setDaemon(true)

  override def run(): Unit =
    try while (true) check()
    catch { case _: InterruptedException => () }

  private def check(): Unit =
    try {
      if (Sidecar.running) Sidecar.get.attachment.awaitChange(CheckEveryMs) else Thread.sleep(CheckEveryMs)
      val found = if (Sidecar.running) worker(Sidecar.get.attachment) else None
      if (found.isDefined && found != reported) {
        context.ask(SidecarReports.Report(context.executorID, found.get, text(found.get)).plain)
        reported = found
      }
    } catch {
      case NonFatal(error) =>
        logInfo("Rhino could not report to the driver about the sidecar; trying again", error)
        Thread.sleep(CheckEveryMs)
    }

  /** The report that is due now. None: a sidecar that has just gone may come back. */
  private def worker(sidecar: Attachment): Option[String] =
    sidecar.worker.orElse(if (sidecar.awayS < AwayS) None else Some(""))

  private def text(worker: String): String = {
    val executor = s"Rhino: executor ${context.executorID} on $host"
    if (worker.isEmpty)
      s"$executor can neither load nor commit state, so tasks with state are sent to others as long as there are " +
        s"any: ${Sidecar.get.attachment.failure}"
    else if (reported.contains("")) s"$executor has its sidecar again, of worker $worker"
    else s"$executor belongs to worker $worker"
  }
}

private[rhino] object SidecarReports {

  /** `worker`: id of the worker that the executor belongs to, "" if it has no sidecar. `text`: what the driver logs. */
  case class Report(executor: String, worker: String, text: String) {

    /** A message of plain types, because Spark deserializes a message without the classes of this jar. */
    def plain: Array[String] = Array(executor, worker, text)
  }

  def read(message: Any): Option[Report] = message match {
    case Array(executor: String, worker: String, text: String) => Some(Report(executor, worker, text))
    case _ => None
  }
}
