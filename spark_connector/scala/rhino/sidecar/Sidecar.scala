package rhino.spark.sidecar

import java.io.IOException

import rhino.spark.settings.{ClassNames, Settings}

/** This JVM's sidecar connection. The executor plugin creates it early, so that it is ready before a task needs it. */
private[rhino] object Sidecar {
  @volatile private var connection: SidecarConnection = _
  @volatile private var newestSettings: Settings = _

  def start(host: String, client: String, settings: Settings): Unit = synchronized {
    newestSettings = settings
    if (connection == null) connection = new SidecarConnection(settings.socket(host), client, settings)
  }

  def stop(): Unit = synchronized {
    if (connection != null) connection.close()
    connection = null
  }

  def settings: Settings = newestSettings

  /** Whether this JVM runs the plugin's executor side. A driver on a cluster does not. */
  def running: Boolean = connection != null

  def get: SidecarConnection = {
    val found = connection
    if (found == null) {
      throw new IOException("Rhino's plugin is not running in this JVM: set spark.plugins to " +
        s"${ClassNames.Plugin} (rhino_conf() does)")
    }
    found
  }
}
