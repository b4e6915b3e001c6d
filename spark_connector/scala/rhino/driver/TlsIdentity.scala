package rhino.spark.driver

import java.nio.file.{Files, Path}
import java.security.cert.{CertificateFactory, X509Certificate}

import scala.jdk.CollectionConverters._
import scala.util.Using

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
