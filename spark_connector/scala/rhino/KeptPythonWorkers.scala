package rhino.spark

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.seam.PythonWorkers

/** Keeps the Python workers of an executor, which Spark would end a minute after their last task. */
private[spark] class KeptPythonWorkers extends Thread("rhino-python-workers") with Logging {
  setDaemon(true)

  override def run(): Unit =
    try while (true) {
      PythonWorkers.keep()
      Thread.sleep(KeptPythonWorkers.EveryMs)
    } catch {
      case _: InterruptedException => ()
      case NonFatal(error) => logWarning("unused Python workers are not kept", error)
    }
}

private object KeptPythonWorkers {
  private val EveryMs = 10000L // Spark ends workers after 60 s, and looks every 10 s
}
