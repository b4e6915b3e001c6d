package org.apache.spark.sql.execution.streaming.state
package seam

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/** Reads the lineage in the header of a changelog. `CompressionCodec.createCodec` is private[spark]. */
object ChangelogLineage {

  /**
   * Versions with their checkpoint ids, oldest first. `codec`: the name of the compression codec that wrote the file.
   */
  def read(changelog: Path, codec: String, conf: Configuration): Seq[(Long, String)] = {
    val manager = new FileSystemBasedCheckpointFileManager(changelog, conf)
    val factory = new StateStoreChangelogReaderFactory(
      manager, changelog, CompressionCodec.createCodec(SparkEnv.get.conf, codec))
    val reader = factory.constructChangelogReader()
    try reader.lineage.toSeq.sortBy(_.version).map(item => item.version -> item.checkpointUniqueId)
    finally reader.closeIfNeeded()
  }
}
