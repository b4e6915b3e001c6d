package rhino.spark.settings

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
