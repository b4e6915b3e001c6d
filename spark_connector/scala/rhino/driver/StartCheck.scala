package rhino.spark.driver

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.classic.{SparkSession => ClassicSession}
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

import rhino.spark.restart.{Gate, Restarts}
import rhino.spark.settings.{ClassNames, IntegrationMode, RequiredConf}

/**
 * Refuses a query if Rhino could not keep its state, or if another process runs it, before anything is written to its
 * checkpoint. Spark analyses a query's plan with its sink and checkpoint in `start()`. The plan of a batch has no such
 * node.
 */
private[spark] class StartCheck(session: SparkSession) extends (LogicalPlan => Unit) with Logging {
  private val ProviderKey = SQLConf.STATE_STORE_PROVIDER_CLASS.key

  override def apply(plan: LogicalPlan): Unit = plan match {
    case write: WriteToStream =>
      val checkpoint = new Path(write.resolvedCheckpointLocation)
      Gate.checkStart(checkpoint)
      if (write.inputQuery.exists(UnsupportedOperationChecker.isStatefulOperation))
        check(checkpoint, write.inputQuery, session.asInstanceOf[ClassicSession])
    case _ =>
  }

  private def check(checkpoint: Path, query: LogicalPlan, session: ClassicSession): Unit = {
    val logged = recorded(checkpoint, session)
    val conf = session.sessionState.conf
    val provider = logged.getOrElse(ProviderKey, conf.stateStoreProviderClass)
    if (provider == ClassNames.Provider) query.foreach(refuseTransform)
    val free = logged.isEmpty || Restarts.isRehearsal(checkpoint.toString) // of the application's provider
    val wanted = if (free) provider else session.sparkContext.getConf.get(ProviderKey, "")
    val mode = IntegrationMode.of(provider, checkpoint, wanted)
    mode.refusal.foreach(reason => throw new IllegalArgumentException(reason))
    if (mode.served) RequiredConf.check(key => logged.get(key).orElse(setting(conf, key)))
    else {
      val off = RequiredConf.switchedOff(setting(conf, _))
      if (off.nonEmpty) logWarning(
        s"Rhino does not keep the state of the query at $checkpoint (${mode.name}), and settings for Rhino's queries " +
          s"switch off protections that Spark has for others: ${off.mkString(", ")}. Before this query is started, " +
          "take Spark's defaults for it: spark.conf.unset(name) in its session")
    }
  }

  /** Settings that the checkpoint's newest batch recorded. Spark uses them instead of the session's. */
  private def recorded(checkpoint: Path, session: ClassicSession): Map[String, String] =
    new QueryLogs(session, checkpoint).offsets.getLatest().flatMap(_._2.metadataOpt).map(_.conf).getOrElse(Map.empty)

  private def setting(conf: SQLConf, key: String): Option[String] =
    if (key == RequiredConf.Format) Some(StateStoreConf(conf).stateStoreCheckpointFormatVersion.toString)
    else conf.getAllConfs.collectFirst { case (name, value) if name.equalsIgnoreCase(key) => value }

  private def refuseTransform(node: LogicalPlan): Unit = {
    val operator = node.getClass.getSimpleName
    if (operator.startsWith("TransformWithState") && node.isStreaming) throw new IllegalArgumentException(
      s"$operator insists on Spark's own state store provider: set $ProviderKey=${ClassNames.SparkProvider} and " +
        "write the checkpointLocation as rhino://<scheme>[@<authority>]/<path>, such as rhino://file/checkpoints/q " +
        "(in Python: rhino_checkpoint(...)); Rhino then serves this query too")
  }
}
