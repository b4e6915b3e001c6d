package rhino.spark.settings

import org.apache.spark.SparkConf

import rhino.spark.wire.Schema
import rhino.spark.wire.Schema.Message

/** The spark.rhino.* settings. Unknown names and malformed values are refused with an error that names them. */
private[rhino] case class Settings(
    manager: String,
    tlsDir: Option[String], // folder with the driver's certificate; None: plain text
    socketTemplate: String,
    replicationFactor: Int,
    minCopies: Int, // 0: the default, min(2, replicationFactor + 1)
    belowMinCopies: String,
    durability: String,
    managerTimeoutS: Double, // for a starting driver
    commitTimeoutS: Double,
    prepareTimeoutS: Double) {

  /** Path of the sidecar's Unix socket on the node that Spark calls `host`. */
  def socket(host: String): String = socketTemplate.replace("{host}", host)

  def message: Message = Schema.message(
    "JobSettings",
    "replication_factor" -> replicationFactor,
    "replication_factor_set" -> java.lang.Boolean.TRUE,
    "min_copies" -> minCopies,
    "below_min_copies" -> s"BELOW_MIN_COPIES_${belowMinCopies.toUpperCase}",
    "durability" -> s"DURABILITY_${durability.toUpperCase}")
}

private[rhino] object Settings {
  private val Prefix = "spark.rhino."
  val Manager = Prefix + "manager"
  val TlsDir = Prefix + "tls.dir"
  val Socket = Prefix + "socket"
  val ReplicationFactor = Prefix + "replicationFactor"
  val MinCopies = Prefix + "minCopies"
  val BelowMinCopies = Prefix + "belowMinCopies"
  val Durability = Prefix + "durability"
  val ManagerTimeout = Prefix + "managerTimeout"
  val CommitTimeout = Prefix + "commitTimeout"
  val PrepareTimeout = Prefix + "prepareTimeout"
  private val Known = Seq(
    Manager, TlsDir, Socket, ReplicationFactor, MinCopies, BelowMinCopies, Durability, ManagerTimeout,
    CommitTimeout, PrepareTimeout)

  private def refuse(key: String, value: String, allowed: String): Nothing =
    throw new IllegalArgumentException(s"Rhino setting $key = '$value': must be $allowed")

  private def number(conf: SparkConf, key: String, default: Double, allowed: String)(ok: Double => Boolean): Double = {
    val text = conf.get(key, default.toString)
    text.toDoubleOption.filter(ok).getOrElse(refuse(key, text, allowed))
  }

  /** Throws IllegalArgumentException with the setting, its value and the allowed values. */
  def apply(conf: SparkConf): Settings = {
    conf.getAllWithPrefix(Prefix).foreach { case (name, value) =>
      if (!Known.contains(Prefix + name)) {
        throw new IllegalArgumentException(
          s"unknown Rhino setting $Prefix$name = '$value'; known settings: ${Known.mkString(", ")}")
      }
    }
    val manager = conf.get(Manager, "")
    if (!manager.split(",", -1).forall(_.matches(".+:\\d{1,5}"))) {
      refuse(Manager, manager, "\"host:port\" of a running `rhino manager`, or several with commas between them")
    }
    val factor = number(conf, ReplicationFactor, 1, "a whole number, 0 or more")(v => v >= 0 && v.isWhole).toInt
    val copies = number(conf, MinCopies, 0, s"a whole number from 1 to replicationFactor + 1 = ${factor + 1}")(
      v => v.isWhole && v <= factor + 1 && (v >= 1 || !conf.contains(MinCopies))).toInt
    val below = conf.get(BelowMinCopies, "degraded")
    if (!Set("degraded", "block")(below)) refuse(BelowMinCopies, below, "'degraded' or 'block'")
    val durability = conf.get(Durability, "replicated")
    if (!Set("replicated", "synced")(durability)) refuse(Durability, durability, "'replicated' or 'synced'")
    Settings(
      manager,
      conf.getOption(TlsDir),
      conf.get(Socket, "/run/rhino/sidecar.sock"),
      factor,
      copies,
      below,
      durability,
      number(conf, ManagerTimeout, 60, "a number of seconds above 0")(_ > 0),
      number(conf, CommitTimeout, 60, "a number of seconds above 0")(_ > 0),
      number(conf, PrepareTimeout, 120, "a number of seconds above 0")(_ > 0))
  }
}
