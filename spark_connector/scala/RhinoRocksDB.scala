package org.apache.spark.sql.execution.streaming.state

import java.io.{File, IOException}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging

/** Versions of stores, made loadable by the sidecar of this node (Rhino 4.2.1). */
private[state] object RhinoVersions extends Logging {
  import RhinoSchema._

  private val Named = """(\d+)_([^/]+)\.(?:changelog|zip)""".r
  private val PauseMs = 200L
  private val loading = new ThreadLocal[RhinoStore]

  /** Version and checkpoint id in the name of a changelog or a snapshot. */
  def ofFile(name: String): Option[(Long, String)] = name match {
    case Named(version, id) => Some(version.toLong -> id)
    case _ => None
  }

  /** Runs `load` while the version is held by this node, whole and kept from being collected. */
  def during[T](store: RhinoStore, version: Long, id: String, counted: Boolean = true)(load: => T): T = {
    prepare(store, version, id, counted)
    val before = loading.get
    loading.set(store)
    try load
    finally {
      loading.set(before)
      release(store, version, id)
    }
  }

  /** Whether this thread loads a version of `store`: what it opens then has been found here by Prepare, and is kept. */
  def isLoading(store: RhinoStore): Boolean = loading.get == store

  /** Brings the version to this node. */
  def fetch(store: RhinoStore, version: Long, id: String): Unit = during(store, version, id)(())

  /** Makes the version loadable here and pins it until `release`; in the query's progress if `counted`. */
  def prepare(store: RhinoStore, version: Long, id: String, counted: Boolean = true): Unit = {
    val started = System.nanoTime()
    def elapsedS: Double = (System.nanoTime() - started) / 1e9
    val timeoutS = RhinoSidecar.settings.prepareTimeoutS
    def ask(): Message = RhinoSidecar.get.call(
      "Prepare", "PrepareRequest", timeoutS - elapsedS, s"prepare $store at version ${version}_$id") { session =>
      Seq("session_id" -> session.id, "versions" -> Seq(store.version(version, id)))
    }
    var reply = ask()
    while (reply.enumName("state") == "PREPARE_STATE_UNAVAILABLE" && elapsedS + PauseMs / 1e3 < timeoutS) {
      Thread.sleep(PauseMs)
      reply = ask()
    }
    if (reply.enumName("state") != "PREPARE_STATE_READY") {
      throw new IOException(
        s"$store at version ${version}_$id cannot be loaded (${reply.enumName("state")}): ${reply.string("message")}")
    }
    val (source, fetched) = (reply.enumName("source"), reply.long("fetched_bytes"))
    logInfo(f"Rhino: prepared $store at version $version in ${elapsedS * 1000}%.1f ms ($source, $fetched bytes fetched)")
    if (counted) RhinoMetrics.prepared(store, (elapsedS * 1000).toLong, source, fetched)
  }

  /** Pins end with the session in any case: not being able to end them early must not fail, or hide why, a load. */
  def release(store: RhinoStore, version: Long, id: String): Unit =
    try {
      RhinoSidecar.get.call("Release", "ReleaseRequest", 10, s"release $store at version ${version}_$id") { session =>
        Seq("session_id" -> session.id, "versions" -> Seq(store.version(version, id)))
      }
    } catch {
      case NonFatal(error) => logWarning("Rhino: pins stay until the session with the sidecar ends", error)
    }
}

/** Spark's RocksDB wrapper; a load first makes the version's files local and keeps them from being collected. */
private[state] class RhinoRocksDB(
    store: RhinoStore, conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String,
    useColumnFamilies: Boolean, enableStateStoreCheckpointIds: Boolean, partitionId: Int,
    eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String], counted: Boolean = true)
  extends RocksDB(store.root, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
    enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId) {

  override def load(
      version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    val loaded = loadedVersion == version && loadedStateStoreCkptId == stateStoreCkptId
    if (loaded || version == 0 || loadEmpty || stateStoreCkptId.isEmpty) {
      super.load(version, stateStoreCkptId, readOnly, loadEmpty)
    } else {
      RhinoVersions.during(store, version, stateStoreCkptId.get, counted) {
        super.load(version, stateStoreCkptId, readOnly, loadEmpty)
      }
    }
  }

  /** For Spark's state reader, which may start at an older snapshot than a load would. */
  override def loadFromSnapshot(
      snapshotVersion: Long, endVersion: Long, snapshotId: Option[String], endId: Option[String]): RocksDB = {
    def load(): RocksDB = super.loadFromSnapshot(snapshotVersion, endVersion, snapshotId, endId)
    (snapshotId, endId) match {
      case (Some(first), Some(last)) =>
        RhinoVersions.during(store, snapshotVersion, first) { RhinoVersions.during(store, endVersion, last)(load()) }
      case _ => load()
    }
  }
}
