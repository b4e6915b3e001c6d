package rhino.spark.driver

import java.io.IOException
import java.nio.file.{Files, Path, Paths}
import java.security.GeneralSecurityException
import java.security.cert.{CertificateFactory, X509Certificate}
import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.sparkproject.connect.grpc.{ChannelCredentials, Grpc, InsecureChannelCredentials, ManagedChannel, TlsChannelCredentials}

import org.apache.spark.internal.Logging

import rhino.spark.settings.Settings

/**
 * The connection to the manager. With `spark.rhino.tls.dir` it is TLS with certificates on both sides, and who answers
 * must have the name of a manager of the same cluster, whatever its host. New files count for the next stream. Of
 * several addresses one is used until `elsewhere`.
 */
private[spark] class ManagerChannel(settings: Settings) extends Logging {
  private val addresses = settings.manager.split(",")
  val several: Boolean = addresses.length > 1
  private var used = 0 // index in addresses
  private var channel: ManagedChannel = _
  private var written: Seq[Long] = Nil // times of the files that the channel uses

  /** The channel for a new stream. Throws IllegalArgumentException for files that are no certificate of a driver. */
  def current(): ManagedChannel =
    try renewed()
    catch {
      case error@(_: IOException | _: GeneralSecurityException | _: IllegalArgumentException) =>
        throw new IllegalArgumentException(
          s"${Settings.TlsDir} = ${settings.tlsDir.get}: ${error.getClass.getSimpleName}: ${error.getMessage}. The " +
            s"folder must have ${ManagerChannel.FileNames.mkString(", ")}: `rhino cert driver` makes them", error)
    }

  private def renewed(): ManagedChannel = {
    val now = files.map(file => Files.getLastModifiedTime(file).toMillis)
    if (channel == null || now != written) {
      val made = open()
      if (channel != null) {
        logInfo(s"new certificate in ${settings.tlsDir.get}")
        channel.shutdown()
      }
      channel = made
      written = now
    }
    channel
  }

  /** The next stream goes to the next address, if there are several: a standby does not listen before it leads. */
  def elsewhere(): Unit = if (several) {
    used = (used + 1) % addresses.length
    closeNow()
    channel = null
  }

  def close(): Unit = Option(channel).foreach(_.shutdown())

  def closeNow(): Unit = Option(channel).foreach(_.shutdownNow())

  private def files: Seq[Path] =
    settings.tlsDir.toSeq.flatMap(folder => ManagerChannel.FileNames.map(Paths.get(folder, _)))

  private def open(): ManagedChannel = {
    val builder = Grpc.newChannelBuilder(addresses(used), credentials)
    settings.tlsDir.foreach(folder => builder.overrideAuthority(TlsIdentity.managerName(Paths.get(folder, "tls.crt"))))
    builder.keepAliveTime(10, TimeUnit.SECONDS) // gRPC raises shorter intervals to this one
    builder.keepAliveTimeout(2, TimeUnit.SECONDS)
    builder.keepAliveWithoutCalls(true)
    builder.build()
  }

  private def credentials: ChannelCredentials = files match {
    case Seq(authorities, certificate, key) =>
      TlsChannelCredentials.newBuilder().trustManager(authorities.toFile).keyManager(certificate.toFile, key.toFile)
        .build()
    case _ => InsecureChannelCredentials.create()
  }
}

private[driver] object ManagerChannel {
  private val FileNames = Seq("ca.crt", "tls.crt", "tls.key")
}

/** What a certificate says: one URI `rhino://<cluster>/<role>/<name>`, see rhino_core/security/identity.py. */
private[spark] object TlsIdentity {
  private val UriKind = 6 // of a subject alternative name (RFC 5280, 4.2.1.6)
  private val Identity = "rhino://([0-9a-z-]+)/driver/([0-9A-Za-z._-]+)".r

  /** The DNS name of the managers of the driver's cluster. Throws IllegalArgumentException. */
  def managerName(certificate: Path): String = s"manager.${cluster(certificate)}.rhino"

  private def cluster(file: Path): String = {
    val certificate = Using.resource(Files.newInputStream(file)) { in =>
      CertificateFactory.getInstance("X.509").generateCertificate(in).asInstanceOf[X509Certificate]
    }
    val names = Option(certificate.getSubjectAlternativeNames).map(_.asScala.toSeq).getOrElse(Nil)
    names.collect { case name if name.get(0) == UriKind => name.get(1).toString } match {
      case Seq(Identity(cluster, _)) => cluster
      case other => throw new IllegalArgumentException(
          s"$file: must name a driver, rhino://<cluster>/driver/<name>, and names ${other.mkString(", ")}: " +
            "`rhino cert driver` makes such certificates")
    }
  }
}
