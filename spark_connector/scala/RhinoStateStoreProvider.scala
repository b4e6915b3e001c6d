package org.apache.spark.sql.execution.streaming.state

import java.io.{File, IOException}
import java.lang.reflect.{InvocationTargetException, Method}
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

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
    open(version, uniqueId, readOnly = false, forceSnapshotOnCommit, loadEmpty)

  /** Aggregations read through such a store first, then turn the same one into that which they write through. */
  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore =
    open(version, uniqueId, readOnly = true, forceSnapshotOnCommit = false, loadEmpty = false)

  /**
   * Spark makes a store of its own class, or loads one that it is given, as long as that is read-only. With ours given,
   * rows take no detour: a proxy around Spark's, which has no other way in, costs up to 0.2 us with every call.
   */
  private def open(
      version: Long, uniqueId: Option[String], readOnly: Boolean, forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = {
    val machine = inherited[RocksDBStateMachine]("stateMachine")
    val stamp = machine.acquireStamp()
    var given: MeteredStore = null
    try {
      given = new MeteredStore(version, stamp)
      RhinoStateStoreProvider.load.invoke(this, Long.box(version), uniqueId, Boolean.box(readOnly), Some(given),
        Boolean.box(forceSnapshotOnCommit), Boolean.box(loadEmpty)).asInstanceOf[StateStore]
    } catch {
      case NonFatal(error) =>
        val cause = error match {
          case wrapped: InvocationTargetException => wrapped.getCause
          case other => other
        }
        // Now, not when the task ends: by then another may hold the store.
        try if (given != null) given.abort()
        catch { case NonFatal(further) => cause.addSuppressed(further) }
        finally machine.releaseStamp(stamp, throwEx = false)
        throw cause
    }
  }

  /** Spark's store, with Rhino's figures among its metrics. Whoever loads it says whether it is for writing. */
  private class MeteredStore(atVersion: Long, itsStamp: Long)
    extends RocksDBStateStore(atVersion, itsStamp, true, false) {
    override def metrics: StateStoreMetrics = {
      val its = super.metrics
      its.copy(customMetrics = its.customMetrics ++ RhinoMetrics.take(store))
    }
  }

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
}

private[state] object RhinoStateStoreProvider {
  val codecs = new ConcurrentHashMap[RhinoStore, String]()

  /** Spark's private `loadStateStore(version, uniqueId, readOnly, existingStore, forceSnapshotOnCommit, loadEmpty)`. */
  private val load: Method = {
    val (option, boolean) = (classOf[Option[_]], classOf[Boolean])
    val found = classOf[RocksDBStateStoreProvider].getDeclaredMethod(
      "loadStateStore", classOf[Long], option, boolean, option, boolean, boolean)
    found.setAccessible(true)
    found
  }

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
