package rhino.spark.modify.jars

import java.lang.invoke.{MethodHandle, MethodType}
import java.lang.ref.SoftReference
import java.security.MessageDigest
import java.util.HexFormat

import org.json4s._

import org.apache.spark.SparkContext

/**
 * What Spark calls in place of a function of Scala or Java that has a name. The Java code that Spark generates names
 * the class of the function. So that code stays as it is when the function is replaced, and executors have nothing to
 * compile.
 */
private[spark] abstract class CalledFunction(val arity: Int) extends Serializable {

  /** The function itself, as the method that is called. Each task asks once. */
  protected def method(): MethodHandle

  /** Takes and returns objects, as many as Spark passes, so that a call needs no array of them. */
  @transient private[modify] lazy val called: MethodHandle = method().asType(MethodType.genericMethodType(arity))

  /** What `ScalaUDF` takes. It is one object, so plans see that calls with the same arguments are equal. */
  @transient lazy val asFunction: AnyRef = Arities.of(arity, this)
}

/** A function of the application. */
private[spark] class OwnFunction(its: AnyRef, arity: Int) extends CalledFunction(arity) {
  override protected def method(): MethodHandle = FunctionForm.ofScala(arity).bound(its)
}

/**
 * A function of a jar, as plans carry it. The tasks that call it make an object of the class, each its own. `bytes`:
 * the jar.
 */
private[spark] class JarFunction(val className: String, val digest: String, bytes: () => Array[Byte], arity: Int)
  extends CalledFunction(arity) {

  override protected def method(): MethodHandle = {
    val its = newInstance()
    val form = FunctionForm.of(its.getClass, arity).getOrElse(
      throw new IllegalStateException(s"$className does not take $arity arguments")) // the check has seen to that
    form.bound(its)
  }

  /** With the classes of the thread that asks. Nothing of the class runs. */
  def loaded(): Class[_] = {
    val parent = Option(Thread.currentThread.getContextClassLoader).getOrElse(getClass.getClassLoader)
    JarClass.of(className, JarClassLoader.of(digest, bytes, parent))
  }

  /** Throws IllegalArgumentException with what is wrong with the class. */
  def newInstance(): AnyRef = JarClass.instance(loaded())
}

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
