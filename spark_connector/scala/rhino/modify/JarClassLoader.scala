package rhino.spark.modify

import java.net.{URL, URLClassLoader}
import java.nio.file.{Files, Path}
import java.util.{LinkedHashMap, Map => JavaMap}

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
