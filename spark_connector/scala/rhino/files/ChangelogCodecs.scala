package rhino.spark.files

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.internal.SQLConf

import rhino.spark.store.StoreId

/** The compression codecs of the changelogs of stores that were opened in this JVM. */
private[rhino] object ChangelogCodecs {
  private val ofStores = new ConcurrentHashMap[StoreId, String]()

  def put(store: StoreId, codec: String): Unit = ofStores.put(store, codec)

  /** With Spark's own provider, which announces no store, the codec is the one in the settings of the calling task. */
  def of(store: StoreId): String = Option(ofStores.get(store)).getOrElse(SQLConf.get.stateStoreCompressionCodec)
}
