package org.apache.spark.sql.execution.streaming.state
package seam

import java.io.{File, IOException}
import java.lang.reflect.{InvocationTargetException, Method}
import java.util.concurrent.ConcurrentHashMap

import scala.annotation.nowarn
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

/**
 * Spark's RocksDB provider with its state files elsewhere. The query checkpoint stays on its own file system. It is
 * here because `RocksDBStateStoreProvider` is private[sql]; several of its members are private and are read by
 * reflection.
 */
abstract class ReplicatedProvider extends RocksDBStateStoreProvider {

  @volatile private var store: ReplicatedStore = _

  /** Throws IllegalArgumentException for settings that endanger the state. */
  protected def checkSettings(id: StateStoreId, conf: StateStoreConf): Unit

  /**
   * Returns the store. `separate` creates a further database over the same files, for another purpose than Spark's.
   *
   * @param codec name of the compression codec of the store's changelogs
   */
  protected def openStore(id: StateStoreId, codec: String, hadoopConf: Configuration)(
      separate: ReplicatedStore => RocksDB): ReplicatedStore

  /** The kinds of metrics that `ReplicatedStore.takeMetrics` returns. */
  protected def addedMetrics: Seq[StateStoreCustomMetric]

  override def init(
      stateStoreId: StateStoreId, keySchema: StructType, valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec, useColumnFamilies: Boolean, storeConfs: StateStoreConf,
      hadoopConf: Configuration, useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    checkSettings(stateStoreId, storeConfs)
    super.init(stateStoreId, keySchema, valueSchema, keyStateEncoderSpec, useColumnFamilies, storeConfs, hadoopConf,
      useMultipleValuesPerKey, stateSchemaProvider)
  }

  @nowarn("msg=references private") // Spark's signature has a type that only Spark's own subclasses see
  override def createRocksDB(
      dfsRootDir: String, conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String,
      useColumnFamilies: Boolean, enableStateStoreCheckpointIds: Boolean, partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String]): RocksDB = {
    store = openStore(stateStoreId, conf.compressionCodec, hadoopConf) { separate =>
      new ReplicatedRocksDB(separate, conf, Utils.createTempDir(localRootDir.getParent, "warm-up"), hadoopConf,
        s"$loggingId (warming up)", useColumnFamilies, enableStateStoreCheckpointIds, partitionId, None, None)
    }
    makeFolder(stateStoreId.storeCheckpointLocation(), hadoopConf)
    new ReplicatedRocksDB(store, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
      enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId)
  }

  /** Makes the folder of the partition in the query checkpoint, by which Spark's state reader finds partitions. */
  private def makeFolder(folder: Path, hadoopConf: Configuration): Unit = {
    val files = folder.getFileSystem(hadoopConf)
    if (!files.exists(folder) && !files.mkdirs(folder)) throw new IOException(s"cannot make the folder $folder")
  }

  override def getStore(
      version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    open(version, uniqueId, readOnly = false, forceSnapshotOnCommit, loadEmpty)

  /** An aggregation reads through such a store first, then converts the same store for writing. */
  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore =
    open(version, uniqueId, readOnly = true, forceSnapshotOnCommit = false, loadEmpty = false)

  /**
   * Spark creates a store of its own class, or loads an existing one if that is read-only. This passes a store of our
   * subclass, which adds the metrics. A proxy around Spark's store, the only other possibility, would slow down every
   * call.
   */
  private def open(
      version: Long, uniqueId: Option[String], readOnly: Boolean, forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = {
    val machine = inherited[RocksDBStateMachine]("stateMachine")
    val stamp = machine.acquireStamp()
    var metered: MeteredStore = null
    try {
      metered = new MeteredStore(version, stamp)
      ReplicatedProvider.load.invoke(this, Long.box(version), uniqueId, Boolean.box(readOnly), Some(metered),
        Boolean.box(forceSnapshotOnCommit), Boolean.box(loadEmpty)).asInstanceOf[StateStore]
    } catch {
      case NonFatal(error) =>
        val cause = error match {
          case wrapped: InvocationTargetException => wrapped.getCause
          case other => other
        }
        // Abort now, not at the end of the task: by then another task may use the store.
        try if (metered != null) metered.abort()
        catch { case NonFatal(further) => cause.addSuppressed(further) }
        finally machine.releaseStamp(stamp, throwEx = false)
        throw cause
    }
  }

  /** Spark's store with the added metrics. Spark's loading code decides whether it is for writing. */
  private class MeteredStore(atVersion: Long, itsStamp: Long)
    extends RocksDBStateStore(atVersion, itsStamp, true, false) {
    override def metrics: StateStoreMetrics = {
      val its = super.metrics
      its.copy(customMetrics = its.customMetrics ++ store.takeMetrics())
    }
  }

  /** Spark's reader of changes would look for changelogs in the query checkpoint, but they are in the store. */
  override def getStateStoreChangeDataReader(
      startVersion: Long, endVersion: Long, columnFamily: Option[String],
      endVersionId: Option[String]): StateStoreChangeDataReader = {
    val (root, hadoopConf) = (new Path(store.root), inherited[Configuration]("hadoopConf"))
    val storeConf = inherited[StateStoreConf]("storeConf")
    new RocksDBStateStoreChangeDataReader(
      stateStoreId, CheckpointFileManager.create(root, hadoopConf), rocksDB, root, startVersion, endVersion,
      endVersionId,
      CompressionCodec.createCodec(SparkEnv.get.conf, storeConf.compressionCodec),
      inherited[ReplicatedProvider.Encoders]("keyValueEncoderMap"),
      storeConf, columnFamily)
  }

  /** Reads a private member of Spark's class, which is compiled to a public method with a longer name. */
  private def inherited[T](name: String): T = {
    val owner = classOf[RocksDBStateStoreProvider]
    owner.getMethod(s"${owner.getName.replace('.', '$')}$$$$$name").invoke(this).asInstanceOf[T]
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = super.supportedCustomMetrics ++ addedMetrics
}

private object ReplicatedProvider {
  type Encoders = ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)]

  /** Spark's private `loadStateStore(version, uniqueId, readOnly, existingStore, forceSnapshotOnCommit, loadEmpty)`. */
  private val load: Method = {
    val (option, boolean) = (classOf[Option[_]], classOf[Boolean])
    val found = classOf[RocksDBStateStoreProvider].getDeclaredMethod(
      "loadStateStore", classOf[Long], option, boolean, option, boolean, boolean)
    found.setAccessible(true)
    found
  }
}

/** A store whose files are with Rhino, as far as Spark's classes must know it. */
trait ReplicatedStore {

  /** The path that takes the place of the store's folder in the query checkpoint. */
  def root: String

  /** Runs `load` while all files of the version are on this node and stay there. */
  def whileLocal[T](version: Long, id: String)(load: => T): T

  /** Rhino's metrics of the store since the last call. */
  def takeMetrics(): Map[StateStoreCustomMetric, Long]
}
