package rhino.spark

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreConf, StateStoreCustomMetric, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.seam.{ReplicatedProvider, ReplicatedStore}

import rhino.spark.files.{ChangelogCodecs, CheckpointJobs}
import rhino.spark.load.{SidecarStore, StoreMetrics, WarmUp}
import rhino.spark.settings.{IntegrationMode, RequiredConf}
import rhino.spark.store.StoreId

/**
 * Spark's RocksDB provider with its state files on rhino://. The query checkpoint stays on its own file system. The
 * sidecar prepares a version before it is loaded, so that each of its files only needs a hard link (Rhino 4.2.1).
 */
class RhinoStateStoreProvider extends ReplicatedProvider {

  override protected def checkSettings(id: StateStoreId, conf: StateStoreConf): Unit = {
    RequiredConf.check {
      case RequiredConf.Format => Some(conf.stateStoreCheckpointFormatVersion.toString)
      case other => conf.sqlConfs.get(other).orElse(
          conf.sqlConfs.collectFirst { case (key, value) if key.equalsIgnoreCase(other) => value })
    }
    IntegrationMode.refuseBoth(checkpointOf(id))
  }

  override protected def openStore(id: StateStoreId, codec: String, hadoopConf: Configuration)(
      separate: ReplicatedStore => RocksDB): ReplicatedStore = {
    val job = CheckpointJobs.of(checkpointOf(id), hadoopConf)
    val store = StoreId(job, id.operatorId, id.partitionId, id.storeName)
    ChangelogCodecs.put(store, codec)
    WarmUp.offer(store)(separate(new SidecarStore(store, counted = false)))
    new SidecarStore(store, counted = true)
  }

  override protected def addedMetrics: Seq[StateStoreCustomMetric] = StoreMetrics.all

  private def checkpointOf(id: StateStoreId): Path = new Path(id.checkpointRootLocation).getParent
}
