package rhino.spark.jarred

import java.io.ByteArrayOutputStream
import java.lang.{Integer => JavaInteger, Long => JavaLong}
import java.util.jar.{JarEntry, JarOutputStream}

import org.apache.spark.sql.api.java.{UDF1, UDF2}

/** Classes of the jars of JarSuite. */
class Plus extends UDF1[JavaLong, JavaLong] {
  override def call(value: JavaLong): JavaLong = if (value == null) null else value + 1
}

class Twice extends (Long => Long) {
  override def apply(value: Long): Long = 2 * value
}

object Minus extends (Long => Long) {
  override def apply(value: Long): Long = -value
}

abstract class Base[T] extends UDF1[T, T] {
  override def call(value: T): T = value
}

class SameText extends Base[String]

class Sum extends UDF2[JavaLong, JavaLong, JavaLong] {
  override def call(one: JavaLong, other: JavaLong): JavaLong = one + other
}

class Whole extends UDF1[JavaLong, JavaInteger] {
  override def call(value: JavaLong): JavaInteger = value.intValue
}

class Other {
  def value: Long = 7
}

class NeedsOther extends UDF1[JavaLong, JavaLong] {
  private val other = new Other
  override def call(value: JavaLong): JavaLong = other.value
}

class TakesOther extends UDF1[Other, JavaLong] {
  override def call(value: Other): JavaLong = value.value
}

class Fails extends Base[String] {
  require(value < 0, "no licence")
  private def value: Int = 1
}

class Needs(value: Long) extends UDF1[JavaLong, JavaLong] {
  override def call(other: JavaLong): JavaLong = value
}

class Nothing

object Jars {

  /** A jar with these classes of this package, as `change` makes them. */
  def changed(names: String*)(change: Array[Byte] => Array[Byte]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val jar = new JarOutputStream(bytes)
    for (name <- names) {
      val path = s"rhino/spark/jarred/$name.class"
      jar.putNextEntry(new JarEntry(path))
      jar.write(change(getClass.getClassLoader.getResourceAsStream(path).readAllBytes()))
    }
    jar.close()
    bytes.toByteArray
  }

  def of(names: String*): Array[Byte] = changed(names: _*)(same => same)

  /** An application without these classes. */
  val without: ClassLoader = new ClassLoader(getClass.getClassLoader) {
    override protected def loadClass(name: String, resolve: Boolean): Class[_] =
      if (name.startsWith("rhino.spark.jarred.")) throw new ClassNotFoundException(name)
      else super.loadClass(name, resolve)
  }
}
