package rhino.spark.settings

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SPARK_VERSION, SparkConf}
import org.apache.spark.sql.internal.SQLConf

/**
 * The Spark settings that Rhino needs. The driver plugin sets those that the application has left unset. So an
 * application only has to set the plugin, a provider class and the manager's address. `rhino_conf()` documents the
 * reasons.
 */
private[rhino] object RequiredConf {
  private val Streaming = "spark.sql.streaming."
  private val Exclusion = "spark.excludeOnFailure."
  private val MaxFailures = "spark.task.maxFailures"
  private val ExtensionsKey = "spark.sql.extensions"
  val Format: String = Streaming + "stateStore.checkpointFormatVersion"
  val Changelogs: String = Streaming + "stateStore.rocksdb.changelogCheckpointing.enabled"
  private val FileManager =
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

  /** The same as `state_conf()` in conf.py; a test compares them. */
  val ofState: Seq[(String, String)] = Seq(
    Format -> "2",
    Changelogs -> "true",
    Streaming + "join.stateFormatVersion" -> (if (SPARK_VERSION.startsWith("4.2.")) "3" else "4"),
    Streaming + "checkpoint.fileChecksum.enabled" -> "false",
    Streaming + "checkpointFileManagerClass" -> FileManager,
    Streaming + "stateStore.unloadOnCommit" -> "false",
    Streaming + "stateStore.rocksdb.checkStaleReusedFilesInSnapshot" -> "false",
    Streaming + "stateStore.maintenanceInterval" -> "3s",
    Streaming + "stateStore.forceSnapshotUploadOnLag" -> "false")
  private val Protections = Seq(
    Streaming + "checkpoint.fileChecksum.enabled",
    Streaming + "checkpointFileManagerClass",
    Streaming + "stateStore.rocksdb.checkStaleReusedFilesInSnapshot")

  /** The same as in `recovery_conf()` in conf.py, which has the reasons; a test compares them. */
  val ofExclusion: Seq[(String, String)] = Seq(
    Exclusion + "taskAndStage.enabled" -> "true",
    Exclusion + "task.maxTaskAttemptsPerExecutor" -> "3",
    Exclusion + "task.maxTaskAttemptsPerNode" -> "3",
    Exclusion + "stage.maxFailedTasksPerExecutor" -> "1000000",
    Exclusion + "stage.maxFailedExecutorsPerNode" -> "1000000",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout" -> "5s")
  private val OfFiles = Seq(
    "fs.rhino.impl" -> ClassNames.FileSystem,
    "fs.AbstractFileSystem.rhino.impl" -> ClassNames.AbstractFileSystem)

  /**
   * Sets what is missing in the application's settings and in `hadoop`, which Spark makes before it starts plugins.
   * Throws IllegalArgumentException for values of the application that Rhino does not support.
   */
  def complete(conf: SparkConf, hadoop: Configuration): Unit = {
    val provider = conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key, "")
    // Spark's default, the in-memory provider, does not support format 2, and Rhino does not serve it.
    if (provider == ClassNames.Provider || provider == ClassNames.SparkProvider)
      ofState.foreach { case (key, value) => conf.setIfMissing(key, value) }
    OfFiles.foreach { case (key, value) =>
      conf.setIfMissing("spark.hadoop." + key, value)
      hadoop.setIfUnset(key, value)
    }
    completeExclusion(conf)
    val extensions = conf.get(ExtensionsKey, "").split(',').map(_.trim).filter(_.nonEmpty)
    conf.set(ExtensionsKey, (extensions :+ ClassNames.Extensions).distinct.mkString(","))
    if (provider == ClassNames.Provider) check(conf.getOption)
  }

  /**
   * Lets Spark try a task elsewhere that fails where its state is, for example on an executor whose sidecar has gone.
   * Leaves an application alone that says itself what to exclude, or whose tasks have too few attempts. A single
   * process has no elsewhere.
   */
  private def completeExclusion(conf: SparkConf): Unit = {
    val decided = conf.getAllWithPrefix(Exclusion).exists { case (name, _) => name.endsWith("enabled") }
    val local = conf.get("spark.master", "").startsWith("local")
    if (!decided && !local && conf.getInt(MaxFailures, 4) > 3)
      ofExclusion.foreach { case (key, value) => conf.setIfMissing(key, value) }
  }

  /** Settings that are not Spark's defaults, because Rhino protects the state of its queries itself. */
  def switchedOff(setting: String => Option[String]): Seq[String] =
    Protections.filter(key => setting(key).exists(ofState.toMap.get(key).contains))

  /** Throws IllegalArgumentException for settings that endanger the state. */
  def check(setting: String => Option[String]): Unit = {
    val format = setting(Format)
    if (!format.flatMap(_.toIntOption).exists(_ >= 2)) throw new IllegalArgumentException(
      s"$Format = ${format.getOrElse("unset")}: Rhino needs 2. Format 1 reuses file names on retries, so a late task " +
        "could overwrite another's version. Leave it out or set it to 2 (rhino_conf() does). If the " +
        "checkpoint was made in format 1, convert it first: rhino adopt <checkpoint> --to-format 2")
    val changelogs = setting(Changelogs)
    if (!changelogs.flatMap(_.toBooleanOption).contains(true)) throw new IllegalArgumentException(
      s"$Changelogs = ${changelogs.getOrElse("unset")}: Rhino replicates changelogs with every batch. Leave it out " +
        "or set it to true (rhino_conf() does)")
  }
}

/** Names of classes that appear in settings. Strings, because the settings do not depend on those classes. */
private[rhino] object ClassNames {
  val Plugin = "rhino.spark.RhinoPlugin"
  val Provider = "rhino.spark.RhinoStateStoreProvider"
  val Extensions = "rhino.spark.RhinoExtensions"
  val FileSystem = "rhino.spark.RhinoFileSystem"
  val AbstractFileSystem = "rhino.spark.RhinoAbstractFileSystem"

  /** Spark's own provider for RocksDB, which the integration mode "checkpoint" uses. */
  val SparkProvider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
