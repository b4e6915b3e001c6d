package rhino.spark.restart

import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreConf, StateStoreCustomMetric, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.seam.{ReplicatedProvider, ReplicatedStore}

import rhino.spark.load.{SidecarStore, WarmUp}

/**
 * The state of a rehearsal: in the folder of the rehearsal, so that neither manager nor sidecars know of it, but with
 * the classes of Rhino's provider. An executor also loads a store of the query that is to be taken over, once, and
 * throws it away. The first batch on trial would otherwise wait until the code of a load is read and compiled.
 *
 * The folder `open` has a file for each store that an executor has open. Executors close stores some seconds after the
 * end of their query, and tasks of the next one wait for that.
 */
class RehearsalProvider extends ReplicatedProvider {
  private var closed = () => ()

  override protected def checkSettings(id: StateStoreId, conf: StateStoreConf): Unit = ()

  override protected def openStore(id: StateStoreId, codec: String, hadoopConf: Configuration)(
      separate: ReplicatedStore => RocksDB): ReplicatedStore = {
    val rehearsal = new Path(id.checkpointRootLocation).getParent
    if (Restarts.isRehearsal(rehearsal.toString)) {
      note(new Path(rehearsal, s"open/${UUID.randomUUID()}"), hadoopConf)
      WarmUp.now {
        CommittedStores.here(rehearsal.getParent.getParent.getParent, id, hadoopConf).map { its =>
          (its, () => separate(new SidecarStore(its.store, counted = false)))
        }
      }
    }
    new InItsFolder(id)
  }

  /** Throws IOException if the rehearsal is over: its folder must not come back. */
  private def note(mark: Path, hadoopConf: Configuration): Unit = {
    val files = mark.getFileSystem(hadoopConf)
    files.createNonRecursive(mark, false, 4096, 1.toShort, files.getDefaultBlockSize(mark), null).close()
    closed = () => files.delete(mark, false)
  }

  override def close(): Unit =
    try super.close()
    finally closed()

  override protected def addedMetrics: Seq[StateStoreCustomMetric] = Nil

  private class InItsFolder(id: StateStoreId) extends ReplicatedStore {
    override def root: String = id.storeCheckpointLocation().toString
    override def whileLocal[T](version: Long, id: String)(load: => T): T = load
    override def takeMetrics(): Map[StateStoreCustomMetric, Long] = Map.empty
  }
}
