package rhino.spark.settings

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.internal.SQLConf

/**
 * How Rhino keeps the state of a query, if it does.
 *
 * @param name    for logs
 * @param served  whether Rhino keeps the state
 * @param refusal why the query must not run
 */
private[rhino] case class IntegrationMode(name: String, served: Boolean, refusal: Option[String] = None)

private[rhino] object IntegrationMode {
  import ClassNames.{Provider, SparkProvider}

  val Scheme = "rhino"
  private val Key = SQLConf.STATE_STORE_PROVIDER_CLASS.key

  /** Whether a query checkpoint is on Rhino's file system. */
  def isRhino(location: Path): Boolean = location.toUri.getScheme == Scheme

  /**
   * @param provider the class that runs: Spark takes it from the checkpoint's offset log, not from the session
   * @param wanted   the class in the application's configuration
   */
  def of(provider: String, checkpoint: Path, wanted: String): IntegrationMode =
    (provider, isRhino(checkpoint)) match {
      case (Provider, true) => refused("provider and checkpoint", both(checkpoint))
      case (Provider, false) => IntegrationMode("provider", served = true)
      case (SparkProvider, true) => IntegrationMode("checkpoint", served = true)
      case (other, true) => refused("none: another provider", unserved(other, checkpoint))
      case (other, false) if wanted == Provider =>
        refused("none: another provider in the checkpoint", foreign(other, checkpoint))
      case _ => IntegrationMode(s"none: $provider, and a checkpointLocation that is not on rhino://", served = false)
    }

  /** Throws IllegalArgumentException if Rhino's provider meets a checkpoint on rhino://: both would store the state. */
  def refuseBoth(checkpoint: Path): Unit =
    if (isRhino(checkpoint)) throw new IllegalArgumentException(both(checkpoint))

  private def refused(name: String, reason: String) = IntegrationMode(name, served = false, Some(reason))

  private def unserved(provider: String, checkpoint: Path): String =
    s"the checkpoint $checkpoint is on rhino://, which serves $SparkProvider only, not $provider: set $Key to it and " +
      "start from a new checkpoint"

  private def foreign(provider: String, checkpoint: Path): String =
    s"the checkpoint $checkpoint was made with the state store provider $provider, which its offset log records; " +
      s"$Provider cannot go on with it as it is. Take its state over (rhino adopt --to-format 2 <folder of the " +
      "checkpoint>), start this query from a new checkpoint, or run it in a session without Rhino's provider"

  private def both(checkpoint: Path): String =
    s"the checkpoint $checkpoint is on rhino:// and the state store provider is $Provider: choose one. Either a " +
      s"checkpointLocation on rhino:// with $Key=$SparkProvider (serves transformWithState too), or Rhino's provider " +
      "with a checkpointLocation that is not on rhino://"
}
