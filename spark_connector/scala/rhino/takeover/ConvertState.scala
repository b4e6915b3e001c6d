package rhino.spark.takeover

import java.util.UUID
import java.util.concurrent.{Callable, ExecutorCompletionService, Executors}

import scala.io.Source
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, NoPrefixKeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec, StateSchemaCompatibilityChecker,
  StateStoreColFamilySchema, StateStoreConf, StateStoreId, StateStoreProvider, StateStoreProviderId
}
import org.apache.spark.sql.internal.SQLConf

/**
 * Copies stores of a stopped query, as of one version, into new stores of Spark's RocksDB provider in another folder.
 * `rhino adopt --to-format 2` starts it for state of the HDFS-backed provider. Every key and value is read and written
 * by Spark's own providers, so rows and schemas stay as they are.
 *
 * Arguments: the `state` folder to read, the `state` folder to write, the version, and how many stores at a time.
 * Standard input has lines of fields that tabs separate: `read <setting> <value>`, `write <setting> <value>` and
 * `store <operator> <partition> <name> <columns of the prefix key>`. For each store that is done, standard output gets
 * a line `done <operator> <partition> <name> <rows>`.
 */
object ConvertState {
  private case class Store(operator: Long, partition: Int, name: String, prefixColumns: Int) {
    def in(root: String): StateStoreProviderId =
      StateStoreProviderId(StateStoreId(root, operator, partition, name), UUID.randomUUID())
  }

  private case class Job(from: String, to: String, version: Long, reading: StateStoreConf, writing: StateStoreConf)

  def main(arguments: Array[String]): Unit = {
    val Array(from, to, version, atATime) = arguments: @unchecked
    try run(from, to, version.toLong, atATime.toInt, Source.stdin.getLines().map(_.split("\t", -1)).toList)
    catch {
      case NonFatal(error) =>
        error.printStackTrace()
        System.exit(1)
    }
    System.exit(0) // threads that Spark's providers leave behind would keep the JVM for a minute
  }

  private def run(from: String, to: String, version: Long, atATime: Int, input: List[Array[String]]): Unit = {
    def settings(kind: String): StateStoreConf = {
      val conf = new SQLConf
      input.collect { case Array(`kind`, key, value) => conf.setConfString(key, value) }
      new StateStoreConf(conf)
    }
    val stores = input.collect { case Array("store", operator, partition, name, prefixColumns) =>
      Store(operator.toLong, partition.toInt, name, prefixColumns.toInt)
    }
    convertAll(Job(from, to, version, settings("read"), settings("write")), stores, atATime)
  }

  private def convertAll(job: Job, stores: Seq[Store], atATime: Int): Unit = {
    val threads = Executors.newFixedThreadPool(atATime)
    try {
      val running = new ExecutorCompletionService[(Store, Long)](threads)
      stores.foreach { store =>
        running.submit(new Callable[(Store, Long)] {
          override def call(): (Store, Long) = (store, convert(job, store))
        })
      }
      stores.foreach { _ =>
        val (store, rows) = running.take().get()
        println(s"done\t${store.operator}\t${store.partition}\t${store.name}\t$rows")
      }
    } finally threads.shutdownNow()
  }

  /** Returns the number of rows. */
  private def convert(job: Job, store: Store): Long = {
    val hadoopConf = new Configuration()
    val schema = schemaOf(job, store, hadoopConf)
    val key: KeyStateEncoderSpec =
      if (store.prefixColumns == 0) NoPrefixKeyStateEncoderSpec(schema.keySchema)
      else PrefixKeyScanStateEncoderSpec(schema.keySchema, store.prefixColumns)
    def open(root: String, conf: StateStoreConf): StateStoreProvider =
      StateStoreProvider.createAndInit(store.in(root), schema.keySchema, schema.valueSchema, key,
        useColumnFamilies = false, conf, hadoopConf, useMultipleValuesPerKey = false, stateSchemaProvider = None)
    val source = open(job.from, job.reading)
    try {
      val target = open(job.to, job.writing)
      try copy(source, target, job.version) finally target.close()
    } finally source.close()
  }

  private def copy(source: StateStoreProvider, target: StateStoreProvider, version: Long): Long = {
    val former = source.getReadStore(version)
    try {
      // Empty, and one version behind: the commit makes `version`.
      val store = target.getStore(version - 1, None, forceSnapshotOnCommit = true, loadEmpty = true)
      var rows = 0L
      try {
        former.iterator().foreach { pair =>
          store.put(pair.key, pair.value)
          rows += 1
        }
        store.commit()
      } finally if (!store.hasCommitted) store.abort()
      rows
    } finally former.abort()
  }

  /** Spark writes the schema of an operator's stores below their partition 0 only. */
  private def schemaOf(job: Job, store: Store, hadoopConf: Configuration): StateStoreColFamilySchema =
    new StateSchemaCompatibilityChecker(store.copy(partition = 0).in(job.from), hadoopConf).readSchemaFile() match {
      case List(schema) => schema
      case several => throw new IllegalStateException(
        s"store $store: its schema names ${several.size} column families, expected 1")
    }
}
