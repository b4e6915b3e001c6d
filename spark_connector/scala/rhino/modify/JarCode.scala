package rhino.spark.modify

import java.lang.ref.SoftReference
import java.security.MessageDigest
import java.util.HexFormat

import org.apache.spark.SparkContext
import org.json4s._

/**
 * A class of a jar that takes the place of a function of Scala or Java.
 *
 * @param className as Java names it
 * @param digest    SHA-256 of the jar, which is in the folder of the modifications under this name
 * @param jar       that file
 * @param fits      the shapes of the functions that it was checked for, as texts
 */
private[spark] case class JarCode(
    className: String, digest: String, jar: JarFile = JarFile.none, fits: Set[String] = Set.empty) {

  /** As long as a plan has it, it is the same object. Throws IllegalStateException if the jar cannot be read. */
  def loaded(arity: Int, context: SparkContext): JarFunction = jar.function(this, arity, context)
}

private[spark] object JarCode {
  private implicit val formats: Formats = DefaultFormats

  /** Throws MappingException or IllegalArgumentException. */
  def read(json: JValue): JarCode = {
    val its = JarCode((json \ "class").extract[String], (json \ "sha256").extract[String])
    require(its.digest.matches("[0-9a-f]{64}"), s"'${its.digest}' is no SHA-256")
    its
  }
}

/** A jar in the folder. Executors get it by a broadcast, which ends when no plan has it and memory is scarce. */
private[spark] class JarFile(load: () => Array[Byte]) {
  private var kept = new SoftReference[JarFunction](null)

  def function(its: JarCode, arity: Int, context: SparkContext): JarFunction = synchronized {
    Option(kept.get).filter(_.arity == arity).getOrElse {
      val sent = JarFile.broadcast(load(), context)
      val made = new JarFunction(its.className, its.digest, sent, arity)
      kept = new SoftReference(made)
      made
    }
  }
}

private[spark] object JarFile {
  val none: JarFile = new JarFile(() => throw new IllegalStateException("the jar is not in the folder"))

  def digest(bytes: Array[Byte]): String = HexFormat.of.formatHex(MessageDigest.getInstance("SHA-256").digest(bytes))

  private def broadcast(bytes: Array[Byte], context: SparkContext): () => Array[Byte] = {
    val sent = context.broadcast(bytes)
    () => sent.value
  }
}
