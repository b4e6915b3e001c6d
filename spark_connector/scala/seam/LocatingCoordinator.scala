package org.apache.spark.sql.execution.streaming.state
package seam

import org.apache.spark.{SparkConf, SparkContext, SparkEnv}
import org.apache.spark.rpc.{RpcCallContext, RpcEnv}
import org.apache.spark.scheduler.ExecutorCacheTaskLocation
import org.apache.spark.sql.internal.SQLConf

/** Answers where a store should be opened. `StateStoreProviderId` names the run, the operator and the partition. */
trait StoreLocator {

  /** Host and executor id. None: Spark decides. */
  def locate(id: StateStoreProviderId): Option[(String, String)]
}

/**
 * Spark's coordinator, except that it answers the question where a store is with its desired location. This is the
 * handover marker (Rhino 4.1) of a micro-batch engine. `StateStoreCoordinator` and its messages are private to Spark's
 * package.
 */
private class LocatingCoordinator(rpcEnv: RpcEnv, conf: SQLConf, locator: StoreLocator)
  extends StateStoreCoordinator(rpcEnv, conf) {

  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    val spark = super.receiveAndReply(context)
    val desired: PartialFunction[Any, Unit] = {
      case request @ GetLocation(id) =>
        locator.locate(id) match {
          case Some((host, executor)) =>
            context.reply(Some(ExecutorCacheTaskLocation(named(host, executor), executor).toString))
          case None => spark(request)
        }
    }
    desired.orElse(spark)
  }

  /**
   * The host as Spark names it for stores and for the files of shuffles. In local mode its scheduler has another name
   * when `spark.driver.host` is set. With both names in a stage, tasks wait for a host that is never offered: for ever,
   * because a local scheduler looks for tasks only when one ends.
   */
  private def named(host: String, executor: String): String =
    if (executor == SparkContext.DRIVER_IDENTIFIER) SparkEnv.get.blockManager.blockManagerId.host else host
}

object LocatingCoordinator {
  private val Name = "StateStoreCoordinator" // Spark's name of its own

  /**
   * Registers the coordinator on this driver. It must happen before Spark registers its own: Spark then finds the name
   * taken and uses this one.
   */
  def install(conf: SparkConf, locator: StoreLocator): Unit = {
    val sqlConf = new SQLConf
    conf.getAll.foreach {
      case (key, value) if key.startsWith("spark.sql.") => sqlConf.setConfString(key, value)
      case _ =>
    }
    val rpcEnv = SparkEnv.get.rpcEnv
    rpcEnv.setupEndpoint(Name, new LocatingCoordinator(rpcEnv, sqlConf, locator))
  }
}
