package rhino.spark.driver

import scala.collection.mutable

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
  private val ofWorker = all.filter(_.worker.isDefined).groupBy(_.worker.get)
  private val unreported = all.filter(_.worker.isEmpty).groupBy(_.host)

  /**
   * Ids of the executors of a worker. An executor knows its worker because it is attached to the sidecar. For the first
   * moments, until it has reported the worker, its host is a guess.
   */
  def on(worker: MapWorker): Seq[String] =
    ofWorker.getOrElse(worker.id, unreported.getOrElse(worker.host, Nil)).map(_.id)

  def hostOf(id: String): String = host(id)
}

/** The executors of the application: those that Spark has, and what they have reported. */
private[spark] class Executors {
  private val hosts = mutable.Map.empty[String, String] // by executor id
  private val reports = mutable.Map.empty[String, SidecarReport] // a report may come before Spark's own event
  @volatile private var newest = new UsableExecutors(Nil)

  /** A new object after every change. */
  def usable: UsableExecutors = newest

  def added(id: String, host: String): Unit = change(hosts.put(id, host))
  def reported(id: String, report: SidecarReport): Unit = change(reports.put(id, report))
  def removed(id: String): Unit = change { hosts.remove(id); reports.remove(id) }

  private def change(act: => Any): Unit = synchronized {
    act
    newest = new UsableExecutors(hosts.toSeq.sorted.flatMap { case (id, host) =>
      reports.get(id) match {
        case Some(SidecarReport.Missing) => None // it can neither load nor commit
        case Some(SidecarReport.Attached(worker)) => Some(UsableExecutor(id, host, Some(worker)))
        case None => Some(UsableExecutor(id, host, None))
      }
    })
  }
}
