package rhino.spark

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, Path}

import rhino.spark.settings.IntegrationMode.Scheme

/** The scheme for Hadoop's FileContext, which Spark's default checkpoint file manager uses. */
class RhinoAbstractFileSystem(itsUri: URI, conf: Configuration)
  extends DelegateToFileSystem(itsUri, new RhinoFileSystem, conf, Scheme, false) {

  /** Allows every authority, because an authority of rhino:// contains scheme and authority of another file system. */
  override def checkPath(path: Path): Unit = ()

  override def renameInternal(from: Path, to: Path, overwrite: Boolean): Unit =
    fsImpl.asInstanceOf[RhinoFileSystem].move(from, to, overwrite)
}
