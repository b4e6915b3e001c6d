package rhino.spark.sidecar

import scala.util.control.NonFatal

import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging

/** Reports to the driver when this executor has had no sidecar for a while, and when it has one again. */
private[rhino] class SidecarReports(context: PluginContext, host: String)
  extends Thread("rhino-sidecar-reports") with Logging {
  private val CheckEveryMs = 500L
  private val AwayS = 3.0 // longer than a restart of the sidecar takes
  private var reported = true
  setDaemon(true)

  override def run(): Unit =
    try while (true) {
      Thread.sleep(CheckEveryMs)
      check()
    } catch { case _: InterruptedException => () }

  private def check(): Unit =
    try {
      val reaches = !Sidecar.running || Sidecar.get.awayS < AwayS
      if (reaches != reported) {
        context.send(SidecarReports.Report(context.executorID, reaches, text(reaches)).plain)
        reported = reaches
      }
    } catch {
      case NonFatal(error) => logInfo("Rhino could not report to the driver about the sidecar; trying again", error)
    }

  private def text(reaches: Boolean): String =
    if (reaches) s"Rhino: executor ${context.executorID} on $host has its sidecar again"
    else s"Rhino: executor ${context.executorID} on $host can neither load nor commit state, so tasks with state are " +
      s"sent to others as long as there are any: ${Sidecar.get.failure}"
}

private[rhino] object SidecarReports {

  /** `reaches`: whether the executor reaches its sidecar. `text`: what the driver logs. */
  case class Report(executor: String, reaches: Boolean, text: String) {

    /** Of plain types, because Spark deserializes a message without the classes of this jar. */
    def plain: Array[String] = Array(executor, reaches.toString, text)
  }

  def read(message: Any): Option[Report] = message match {
    case Array(executor: String, reaches: String, text: String) => Some(Report(executor, reaches.toBoolean, text))
    case _ => None
  }
}
