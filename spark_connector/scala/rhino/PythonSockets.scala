package rhino.spark

import java.util.concurrent.Semaphore

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.seam.PythonWorkers

/**
 * Keeps batches with Python functions from waiting for TCP, see `PythonWorkers.sendAtOnce`. A thread of its own does
 * so after tasks have begun, because Spark locks its workers while it starts one.
 */
private[spark] class PythonSockets extends Thread("rhino-python-sockets") with Logging {
  private val begun = new Semaphore(0)
  setDaemon(true)

  def taskBegins(): Unit = if (begun.availablePermits == 0) begun.release()

  override def run(): Unit =
    try while (true) {
      begun.acquire()
      begun.drainPermits()
      PythonWorkers.sendAtOnce()
    } catch {
      case _: InterruptedException => ()
      case NonFatal(error) => logWarning("sockets of Python workers stay as Spark makes them", error)
    }
}
