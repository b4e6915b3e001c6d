package rhino.spark.files

import java.io.IOException
import java.util.{Collections, LinkedHashMap, Map => JavaMap}

import rhino.spark.store.{StateFileName, StoreId}

/**
 * Refuses snapshots of a query that is gone. A maintenance thread may still write one into a folder that the next query
 * uses as its checkpoint. Only this executor's own files are known, and only the newest ones.
 */
private[rhino] class LateSnapshots(knownMax: Int) {
  private val jobs = Collections.synchronizedMap(new LinkedHashMap[String, String] { // by the unique id of a version
    override def removeEldestEntry(eldest: JavaMap.Entry[String, String]): Boolean = size > knownMax
  })

  /**
   * Call before a file is committed. Throws IOException for a snapshot of a version that was written for another job.
   */
  def check(store: StoreId, name: String): Unit = for ((_, id) <- StateFileName.version(name)) {
    if (StateFileName.isChangelog(name)) jobs.put(id, store.job)
    else Option(jobs.get(id)).filter(_ != store.job).foreach { job =>
      throw new IOException(
        s"$name is a snapshot of query $job, whose checkpoint is now one of query ${store.job}: not kept")
    }
  }
}

/** Those of this JVM. A snapshot follows its changelog within a few batches. */
private[rhino] object LateSnapshots extends LateSnapshots(knownMax = 10000)
