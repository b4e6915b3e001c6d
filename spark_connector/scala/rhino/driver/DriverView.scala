package rhino.spark.driver

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.state.seam.ApplicationTab

/** What the driver shows of Rhino: a tab in Spark's web UI, and metrics in Spark's metrics system. */
private[driver] object DriverView {
  private val Headers = Seq("Query", "Worker", "Host", "Executors", "Virtual nodes")

  def addTab(context: SparkContext, manager: String, session: DriverSession, locations: DesiredLocations): Unit =
    ApplicationTab.add(context, "rhino", () => about(manager, session), Headers, () =>
      for {
        run <- StreamRun.running
        place <- locations.places(run.job)
      } yield Seq(if (run.name.isEmpty) run.job else run.name, place.worker, place.host,
        place.executors.mkString(", "), place.nodes.mkString(", ")))

  private def about(manager: String, session: DriverSession): String =
    (if (session.isConnected) s"The manager at $manager is connected. " else s"No manager answers at $manager. ") +
      s"`rhino status --manager $manager` shows the cluster, and `rhino ui --manager $manager` serves its page."

  def register(metrics: MetricRegistry, session: DriverSession, locations: DesiredLocations): Unit = {
    metrics.register("managerConnected", (() => if (session.isConnected) 1 else 0): Gauge[Int])
    metrics.register("virtualNodesMoved", locations.moved)
  }
}
