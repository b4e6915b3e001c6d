package rhino.spark.driver

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorAdded, SparkListenerExecutorRemoved}

import rhino.spark.sidecar.SidecarReports
import rhino.spark.wire.Schema.{message, Message}

/** A worker of a map. */
private[spark] case class MapWorker(id: String, host: String)

/** The report of an executor about its sidecar. */
private[spark] sealed trait SidecarReport
private[spark] object SidecarReport {
  case object Missing extends SidecarReport
  case class Attached(worker: String) extends SidecarReport
}

/** `host`: Spark's name of its node. `worker`: the worker of its sidecar, None if it has not reported one yet. */
private[spark] case class UsableExecutor(id: String, host: String, worker: Option[String])

/** The executors of the application that can run tasks with state, at one moment. */
private[spark] class UsableExecutors(val all: Seq[UsableExecutor]) {
  private val host = all.map(executor => executor.id -> executor.host).toMap
  private val worker = all.flatMap(executor => executor.worker.map(executor.id -> _)).toMap
  private val ofWorker = all.filter(_.worker.isDefined).groupBy(_.worker.get)
  private val unreported = all.filter(_.worker.isEmpty).groupBy(_.host)

  /**
   * Ids of the executors of a worker. An executor knows its worker because it is attached to the sidecar. For the first
   * moments, until it has reported the worker, its host is a guess.
   */
  def on(worker: MapWorker): Seq[String] =
    ofWorker.getOrElse(worker.id, unreported.getOrElse(worker.host, Nil)).map(_.id)

  def hostOf(id: String): String = host(id)
  def workerOf(id: String): Option[String] = worker.get(id)
}

/**
 * The executors of the application: those that Spark has, and what they have reported.
 *
 * @param isLeaving whether Spark decommissions an executor. It then gives it no more tasks
 */
private[spark] class Executors(val isLeaving: String => Boolean = _ => false) {
  private val hosts = mutable.Map.empty[String, String] // by executor id
  private val reports = mutable.Map.empty[String, SidecarReport] // a report may come before Spark's own event
  private val leaving = mutable.Set.empty[String]
  @volatile private var newest = new UsableExecutors(Nil)

  /** A new object after every change. */
  def usable: UsableExecutors = newest

  def added(id: String, host: String): Unit = change(hosts.put(id, host))
  def reported(id: String, report: SidecarReport): Unit = change(reports.put(id, report))
  def left(id: String): Unit = change(leaving += id)
  def removed(id: String): Unit = change { hosts.remove(id); reports.remove(id); leaving -= id }

  private def change(act: => Any): Unit = synchronized {
    act
    newest = new UsableExecutors(hosts.toSeq.sorted.filterNot(its => leaving(its._1)).flatMap { case (id, host) =>
      reports.get(id) match {
        case Some(SidecarReport.Missing) => None // it can neither load nor commit
        case Some(SidecarReport.Attached(worker)) => Some(UsableExecutor(id, host, Some(worker)))
        case None => Some(UsableExecutor(id, host, None))
      }
    })
  }
}

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

  /** Executors that Spark decommissions are gone for tasks with state. Spark has no event for them. */
  def look(): Unit = synchronized {
    executors.usable.all.map(_.id).filter(executors.isLeaving).foreach { id =>
      executors.left(id)
      logWarning(s"Spark decommissions executor $id: tasks with state go to other executors from now on")
      send(gone(id, "decommissioned"))
    }
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

private[spark] object ExecutorListener {
  def changed(executor: UsableExecutor): Message = event(
    "executor_id" -> executor.id, "host" -> executor.host, "worker_id" -> executor.worker.getOrElse(""))

  private def gone(id: String, reason: String): Message =
    event("executor_id" -> id, "removed" -> java.lang.Boolean.TRUE, "reason" -> reason)

  private def event(fields: (String, Any)*): Message =
    message("DriverEvent", "executor_changed" -> message("ExecutorChanged", fields: _*))
}
