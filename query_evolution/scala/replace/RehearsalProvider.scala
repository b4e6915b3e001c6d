package rhino.spark.replace

import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{JArray, JString, JValue}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreConf, StateStoreCustomMetric, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.seam.{ReplicatedProvider, ReplicatedStore}

import rhino.spark.files.CheckpointJobs
import rhino.spark.load.{LoadableVersion, SidecarStore, WarmUp}
import rhino.spark.restart.Restarts
import rhino.spark.store.{StatePath, StoreId}

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

/** The stores that the newest batch in a commit log names, as an executor sees them. */
private[spark] object CommittedStores {
  private val LooksMax = 200

  /**
   * A store of the query of `checkpoint` whose newest version is on this node: that of `like`, or else one of another
   * partition, which has the same kind of content. None if there is none among the first ones that are looked at.
   */
  def here(checkpoint: Path, like: StateStoreId, conf: Configuration): Option[LoadableVersion] =
    first(checkpoint, like, conf)(its => exists(new Path(its.store.root, s"${its.version}_${its.id}.changelog"), conf))

  def first(checkpoint: Path, like: StateStoreId, conf: Configuration)(
      isHere: LoadableVersion => Boolean): Option[LoadableVersion] = {
    val found = newest(checkpoint, conf).toSeq.flatMap { case (batch, text) =>
      ids(text, like.operatorId, like.storeName).map { case (partition, id) =>
        LoadableVersion(
          StoreId(CheckpointJobs.of(checkpoint, conf), like.operatorId, partition, like.storeName), batch + 1, id)
      }
    }
    val (before, from) = found.partition(_.store.partition < like.partitionId)
    (from ++ before).take(LooksMax).find(isHere)
  }

  private def exists(file: Path, conf: Configuration): Boolean = file.getFileSystem(conf).exists(file)

  private def newest(checkpoint: Path, conf: Configuration): Option[(Long, String)] = {
    val (commits, files) = (new Path(checkpoint, "commits"), checkpoint.getFileSystem(conf))
    val batches =
      if (exists(commits, conf)) files.listStatus(commits).toSeq.flatMap(_.getPath.getName.toLongOption) else Nil
    batches.maxOption.map { batch =>
      val stream = files.open(new Path(commits, s"$batch"))
      try batch -> new String(stream.readAllBytes(), "UTF-8")
      finally stream.close()
    }
  }

  /**
   * By partition, the checkpoint id of an operator's store in an entry of the commit log. Empty for an operator that
   * the entry does not have, and in checkpoint format 1.
   */
  def ids(entry: String, operator: Long, store: String): Seq[(Int, String)] = {
    val partitions = JsonMethods.parse(entry.drop(entry.indexOf('\n') + 1)) \ "stateUniqueIds" \ s"$operator"
    items(partitions).zipWithIndex.flatMap { case (stores, partition) =>
      val its = items(stores)
      StatePath.storeNames(its.length).zip(its).collect { case (`store`, JString(id)) => partition -> id }
    }
  }

  private def items(value: JValue): Seq[JValue] = value match {
    case JArray(its) => its
    case _ => Nil
  }
}
