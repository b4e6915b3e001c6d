package rhino.spark.modify.jars

import java.lang.invoke.{MethodHandle, MethodHandles, MethodType}
import java.lang.reflect.{InvocationTargetException, Method, Modifier, Type}
import java.net.{URL, URLClassLoader}
import java.nio.file.{Files, Path}
import java.util.{LinkedHashMap, Map => JavaMap}

import scala.util.Try

import org.apache.commons.lang3.reflect.TypeUtils

/** The class of a function in a jar. What is wrong with it is an IllegalArgumentException, for the user. */
private[spark] object JarClass {
  private val JavaOfFirstVersion = 44 // the version of class files of Java 1 is 45

  /** Nothing of the class runs. A Scala object may be given by its name. */
  def of(name: String, loader: JarClassLoader): Class[_] = {
    val found = try Class.forName(name, false, loader)
    catch { case _: ClassNotFoundException => refuse(s"the jar has no class $name") }
    if (found.getClassLoader ne loader) refuse(s"$name is not a class of the jar: the application or Java has it")
    if (isFunction(found)) found
    else Try[Class[_]](Class.forName(s"$name$$", false, loader)).filter(singleton(_).nonEmpty).getOrElse(found)
  }

  def instance(its: Class[_]): AnyRef =
    singleton(its).map(_.get(null)).getOrElse {
      val name = its.getName
      if (its.isInterface || Modifier.isAbstract(its.getModifiers)) refuse(s"$name is abstract: give a class of it")
      val constructor = its.getConstructors.find(_.getParameterCount == 0)
      if (!Modifier.isPublic(its.getModifiers) || constructor.isEmpty) refuse(
        s"$name is no public class with a public constructor without arguments")
      constructor.get.newInstance().asInstanceOf[AnyRef]
    }

  /** Of a Scala object. */
  private def singleton(its: Class[_]) =
    Try(its.getField("MODULE$")).toOption.filter(field => Modifier.isStatic(field.getModifiers))

  private def isFunction(its: Class[_]): Boolean = FunctionForm.all(its).nonEmpty

  /** Errors of Java's linker in the words of a user. */
  def explained[T](name: String)(act: => T): T =
    try
      try act
      catch { case error: InvocationTargetException => error.getCause match {
          case linking: LinkageError => throw linking
          case _ => throw error
        }
      }
    catch {
      case error: UnsupportedClassVersionError => refuse(
        s"$name was compiled for a newer Java than ${Runtime.version.feature}, which the executors have: compile it " +
          s"with --release ${Runtime.version.feature}${versionOf(error)}")
      case error: InvocationTargetException => refuse(s"the constructor of $name has failed: ${error.getCause}")
      case error: ExceptionInInitializerError => refuse(s"the class $name cannot be initialised: ${error.getCause}")
      case error: NoClassDefFoundError if String.valueOf(error.getMessage).startsWith("Could not init") =>
        refuse(s"$name cannot be loaded: ${error.getMessage}")
      case error: NoClassDefFoundError => refuse(
        s"$name needs the class ${Option(error.getMessage).getOrElse("?").replace('/', '.')}, which neither the jar " +
          "nor the executors have: put it into the jar")
      case error: LinkageError => refuse(s"$name cannot be loaded: $error")
    }

  private def versionOf(error: UnsupportedClassVersionError): String =
    raw"class file version (\d+)".r.findFirstMatchIn(String.valueOf(error.getMessage))
      .fold("")(found => s" (it is for Java ${found.group(1).toInt - JavaOfFirstVersion})")

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}

/**
 * As what Spark calls a class.
 *
 * @param interface of Scala, or of Spark for Java
 * @param method    its only abstract method
 */
private[spark] case class FunctionForm(interface: Class[_], method: String, arity: Int) {

  /** What calls this object. */
  def bound(its: AnyRef): MethodHandle =
    MethodHandles.publicLookup.findVirtual(interface, method, MethodType.genericMethodType(arity)).bindTo(its)

  /**
   * Types of the arguments and of the result as the class declares them, None where it does not say. Generic
   * interfaces of Scala do not name primitive types, so the method itself is asked.
   */
  def declared(its: Class[_]): (Seq[Option[Type]], Option[Type]) = {
    val methods = its.getMethods.filter(one =>
      one.getName == method && one.getParameterCount == arity && !one.isBridge && !one.isSynthetic)
    methods match {
      case Array(one) =>
        (one.getGenericParameterTypes.toSeq.map(resolved(its, one, _)), resolved(its, one, one.getGenericReturnType))
      case _ => (Seq.fill(arity)(None), None)
    }
  }

  private def resolved(its: Class[_], of: Method, found: Type): Option[Type] = {
    val variables = TypeUtils.getTypeArguments(its, of.getDeclaringClass)
    Option(if (variables == null) found else TypeUtils.unrollVariables(variables, found))
      .filter(known => TypeUtils.getRawType(known, null) != null)
  }
}

private[spark] object FunctionForm {
  private val scalas =
    (0 to Arities.Max).map(arity => FunctionForm(Class.forName(s"scala.Function$arity"), "apply", arity))
  private val javas = (0 to Arities.Max).map { arity =>
    FunctionForm(Class.forName(s"org.apache.spark.sql.api.java.UDF$arity"), "call", arity)
  }
  private val known: Seq[FunctionForm] = javas ++ scalas

  def ofScala(arity: Int): FunctionForm = scalas(arity)

  def all(its: Class[_]): Seq[FunctionForm] = known.filter(_.interface.isAssignableFrom(its))

  def of(its: Class[_], arity: Int): Option[FunctionForm] = all(its).find(_.arity == arity)
}

/**
 * Classes and files of a jar that came with a modification. They come before those of the application, so the new
 * version of a class may have the name of the present one. Scala and Spark are those of the process, whatever the jar
 * has of them: the function must be what Spark calls. `parent`: what the application has.
 */
private[spark] class JarClassLoader(jar: URL, parent: ClassLoader) extends URLClassLoader(Array(jar), parent) {

  override protected def loadClass(name: String, resolve: Boolean): Class[_] =
    getClassLoadingLock(name).synchronized {
      findLoadedClass(name) match {
        case null if JarClassLoader.isOfProcess(name) => super.loadClass(name, resolve)
        case null =>
          try findClass(name)
          catch { case _: ClassNotFoundException => super.loadClass(name, resolve) }
        case loaded => loaded
      }
    }

  override def getResource(name: String): URL = findResource(name) match {
    case null => super.getResource(name)
    case own => own
  }
}

private[spark] object JarClassLoader {
  private val OfProcess = Seq("java.", "scala.", "org.apache.spark.")
  private val KeptMax = 32
  private type Key = (String, ClassLoader)
  private val loaders = new LinkedHashMap[Key, JarClassLoader](KeptMax, 0.75f, true) {
    override def removeEldestEntry(eldest: JavaMap.Entry[Key, JarClassLoader]): Boolean = size > KeptMax
  }

  private def isOfProcess(name: String): Boolean = OfProcess.exists(name.startsWith)

  /** One for each jar in a process, and for each `parent`. `bytes` are asked for once. */
  def of(digest: String, bytes: () => Array[Byte], parent: ClassLoader): JarClassLoader = loaders.synchronized {
    loaders.computeIfAbsent((digest, parent), _ => new JarClassLoader(written(bytes()).toUri.toURL, parent))
  }

  /** Only this user reads it. Classes are read from it until the process ends, which removes it. */
  private def written(bytes: Array[Byte]): Path = {
    val file = Files.createTempFile("rhino-modification-", ".jar")
    file.toFile.deleteOnExit()
    Files.write(file, bytes)
  }
}
