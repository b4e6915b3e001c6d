package org.apache.spark.sql.execution.streaming.state
package seam

import java.io.File

import org.apache.hadoop.conf.Configuration

/**
 * Spark's RocksDB wrapper. Before a load it makes the version's files local, and they stay local during the load. It is
 * here because `RocksDBEventForwarder` is private[state].
 */
private class ReplicatedRocksDB(
    store: ReplicatedStore, conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String,
    useColumnFamilies: Boolean, enableStateStoreCheckpointIds: Boolean, partitionId: Int,
    eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String])
  extends RocksDB(store.root, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
    enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId) {

  override def load(
      version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    val loaded = loadedVersion == version && loadedStateStoreCkptId == stateStoreCkptId
    if (loaded || version == 0 || loadEmpty || stateStoreCkptId.isEmpty) {
      super.load(version, stateStoreCkptId, readOnly, loadEmpty)
    } else {
      store.whileLocal(version, stateStoreCkptId.get) {
        super.load(version, stateStoreCkptId, readOnly, loadEmpty)
      }
    }
  }

  /** For Spark's state reader, which may start from an older snapshot than an ordinary load. */
  override def loadFromSnapshot(
      snapshotVersion: Long, endVersion: Long, snapshotId: Option[String], endId: Option[String]): RocksDB = {
    def load(): RocksDB = super.loadFromSnapshot(snapshotVersion, endVersion, snapshotId, endId)
    (snapshotId, endId) match {
      case (Some(first), Some(last)) =>
        store.whileLocal(snapshotVersion, first) { store.whileLocal(endVersion, last)(load()) }
      case _ => load()
    }
  }
}
