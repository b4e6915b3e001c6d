package org.apache.spark.sql.execution.streaming.state

import java.io.{File, IOException}
import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

/**
 * Spark's RocksDB provider with its state files, and only them, on rhino://: the query checkpoint stays where it is.
 * Before a version is loaded the sidecar prepares it, so that every file of it is a hard link away (Rhino 4.2.1).
 */
class RhinoStateStoreProvider extends RocksDBStateStoreProvider {

  @volatile private var store: RhinoStore = _

  override def init(
      stateStoreId: StateStoreId, keySchema: StructType, valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec, useColumnFamilies: Boolean, storeConfs: StateStoreConf,
      hadoopConf: Configuration, useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    RhinoStateStoreProvider.check(storeConfs)
    RhinoCheckpoint.refuseProvider(new Path(stateStoreId.checkpointRootLocation))
    super.init(stateStoreId, keySchema, valueSchema, keyStateEncoderSpec, useColumnFamilies, storeConfs, hadoopConf,
      useMultipleValuesPerKey, stateSchemaProvider)
  }

  override def createRocksDB(
      dfsRootDir: String, conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String,
      useColumnFamilies: Boolean, enableStateStoreCheckpointIds: Boolean, partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String]): RocksDB = {
    val id = stateStoreId
    val job = RhinoJob.of(new Path(id.checkpointRootLocation).getParent, hadoopConf)
    store = RhinoStore(job, id.operatorId, id.partitionId, id.storeName)
    RhinoStateStoreProvider.codecs.put(store, conf.compressionCodec)
    showPartition(id.storeCheckpointLocation(), hadoopConf)
    RhinoWarmUp.offer(store) {
      new RhinoRocksDB(store, conf, Utils.createTempDir(localRootDir.getParent, "warm-up"), hadoopConf,
        s"$loggingId (warming up)", useColumnFamilies, enableStateStoreCheckpointIds, partitionId, None, None,
        counted = false)
    }
    new RhinoRocksDB(store, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
      enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId)
  }

  /** Spark's state reader finds the partitions of an operator by their folders in the query checkpoint. */
  private def showPartition(folder: Path, hadoopConf: Configuration): Unit = {
    val files = folder.getFileSystem(hadoopConf)
    if (!files.exists(folder) && !files.mkdirs(folder)) throw new IOException(s"cannot make the folder $folder")
  }

  override def getStore(
      version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    withMetrics(super.getStore(version, uniqueId, forceSnapshotOnCommit, loadEmpty))

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore, version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean): StateStore =
    withMetrics(super.upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit))

  /** Spark's reader of changes looks for changelogs in the query checkpoint; here they are in the store. */
  override def getStateStoreChangeDataReader(
      startVersion: Long, endVersion: Long, columnFamily: Option[String],
      endVersionId: Option[String]): StateStoreChangeDataReader = {
    val (root, hadoopConf) = (new Path(store.root), inherited[Configuration]("hadoopConf"))
    val storeConf = inherited[StateStoreConf]("storeConf")
    new RocksDBStateStoreChangeDataReader(
      stateStoreId, CheckpointFileManager.create(root, hadoopConf), rocksDB, root, startVersion, endVersion, endVersionId,
      CompressionCodec.createCodec(SparkEnv.get.conf, storeConf.compressionCodec),
      inherited[ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)]]("keyValueEncoderMap"),
      storeConf, columnFamily)
  }

  /** A private member of Spark's class, which compiles to a public method with a longer name. */
  private def inherited[T](name: String): T = {
    val owner = classOf[RocksDBStateStoreProvider]
    owner.getMethod(s"${owner.getName.replace('.', '$')}$$$$$name").invoke(this).asInstanceOf[T]
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = super.supportedCustomMetrics ++ RhinoMetrics.all

  /** The same store with Rhino's figures among its metrics; a proxy, since its class has no other way in. */
  private def withMetrics(inner: StateStore): StateStore = {
    val handler = new InvocationHandler {
      override def invoke(proxy: Any, method: Method, arguments: Array[AnyRef]): AnyRef =
        try {
          val result = method.invoke(inner, Option(arguments).getOrElse(Array.empty[AnyRef]): _*)
          result match {
            case metrics: StateStoreMetrics =>
              metrics.copy(customMetrics = metrics.customMetrics ++ RhinoMetrics.take(store))
            case other => other
          }
        } catch {
          case error: InvocationTargetException => throw error.getCause
        }
    }
    val interfaces = inner.getClass.getInterfaces
    Proxy.newProxyInstance(inner.getClass.getClassLoader, interfaces, handler).asInstanceOf[StateStore]
  }
}

private[state] object RhinoStateStoreProvider {
  val codecs = new ConcurrentHashMap[RhinoStore, String]()

  /** Name of the compression codec of a store's changelogs; with Spark's own provider, of the task that asks. */
  def codecOf(store: RhinoStore): String =
    Option(codecs.get(store)).getOrElse(SQLConf.get.stateStoreCompressionCodec)

  /** Throws IllegalArgumentException for settings with which state would not be safe. */
  def check(conf: StateStoreConf): Unit = {
    val prefix = "spark.sql.streaming.stateStore."
    require(conf.stateStoreCheckpointFormatVersion >= 2,
      s"${prefix}checkpointFormatVersion = ${conf.stateStoreCheckpointFormatVersion}: Rhino needs 2. Format 1 reuses " +
        "file names on retries, so a late task could overwrite another's version. Set it to 2 (rhino_conf() does); " +
        "a query whose checkpoint was made in format 1 has to start from a new checkpoint")
    val changelogs = prefix + "rocksdb.changelogCheckpointing.enabled"
    val enabled = conf.sqlConfs.get(changelogs).orElse(
      conf.sqlConfs.collectFirst { case (key, value) if key.equalsIgnoreCase(changelogs) => value })
    require(enabled.forall(_.toBoolean) && enabled.nonEmpty,
      s"$changelogs = ${enabled.getOrElse("unset")}: Rhino replicates changelogs with every batch. Set it to true " +
        "(rhino_conf() does)")
  }
}
