package rhino.spark

import java.nio.file.{Files, Path}

import org.apache.spark.SparkConf

import rhino.spark.driver.{ManagerChannel, TlsIdentity}
import rhino.spark.settings.Settings

class TlsSuite extends Suite {
  // Of `rhino cert driver etl` and `rhino cert operator alice` in a cluster "production". Only their names matter.
  private val driver =
    """-----BEGIN CERTIFICATE-----
      |MIIBxjCCAW2gAwIBAgIUfajVOI0xhZ4TgJIp4X9GuJjtUS0wCgYIKoZIzj0EAwIw
      |FTETMBEGA1UEAwwKcHJvZHVjdGlvbjAgFw0yNjExMjQxMzA2NDhaGA8yMTI2MTAz
      |MTEzMTE0OFowFTETMBEGA1UEAwwKZHJpdmVyOmV0bDBZMBMGByqGSM49AgEGCCqG
      |SM49AwEHA0IABCxazyPwNl4OtpIdSIoDDDshdgakIg2EACjyVKAtjwyCV68D7qD/
      |HiqYL1cPkebyhlFPxVZgMyj71mwEilUtMaijgZgwgZUwRQYDVR0RBD4wPIYdcmhp
      |bm86Ly9wcm9kdWN0aW9uL2RyaXZlci9ldGyCG2V0bC5kcml2ZXIucHJvZHVjdGlv
      |bi5yaGlubzAMBgNVHRMBAf8EAjAAMB0GA1UdJQQWMBQGCCsGAQUFBwMBBggrBgEF
      |BQcDAjAfBgNVHSMEGDAWgBRoWsMuvsp0716k4+s7yfR+na0DFzAKBggqhkjOPQQD
      |AgNHADBEAiB11lpW0y+n+5A9YwEwQNhE+HrOEcrtZBdtE+3k++xp0AIgcHwHtjlc
      |P0TMpMU5pGM7aDUcucOr87bFF6hFsPUkWgE=
      |-----END CERTIFICATE-----
      |""".stripMargin
  private val operator =
    """-----BEGIN CERTIFICATE-----
      |MIIB0jCCAXmgAwIBAgIUGb+ua8/sfK8UiobxZan9x7JGgEYwCgYIKoZIzj0EAwIw
      |FTETMBEGA1UEAwwKcHJvZHVjdGlvbjAgFw0yNjExMjQxMzA2NDhaGA8yMTI2MTAz
      |MTEzMTE0OFowGTEXMBUGA1UEAwwOb3BlcmF0b3I6YWxpY2UwWTATBgcqhkjOPQIB
      |BggqhkjOPQMBBwNCAASNfjiipDkhwtFCFdvcbuAveAGQMrtGBctbHFU7BpK2Qk/S
      |HsDTRWcKj8+G0at3TcZQEDY5vHrFho3iChYFDq+Oo4GgMIGdME0GA1UdEQRGMESG
      |IXJoaW5vOi8vcHJvZHVjdGlvbi9vcGVyYXRvci9hbGljZYIfYWxpY2Uub3BlcmF0
      |b3IucHJvZHVjdGlvbi5yaGlubzAMBgNVHRMBAf8EAjAAMB0GA1UdJQQWMBQGCCsG
      |AQUFBwMBBggrBgEFBQcDAjAfBgNVHSMEGDAWgBRoWsMuvsp0716k4+s7yfR+na0D
      |FzAKBggqhkjOPQQDAgNHADBEAiA2mlMh+1PBYr3Y2i3GUTk2+Q5FLzi5PjiSi/9j
      |4QhT4QIgRH7vWFjDV1CX0W+Q1Wt2OhgfcV0dG4otklI0TqvOQI8=
      |-----END CERTIFICATE-----
      |""".stripMargin

  private def folder(certificate: String): Path = {
    val made = Files.createTempDirectory("tls")
    for (name <- Seq("ca.crt", "tls.crt", "tls.key")) Files.writeString(made.resolve(name), certificate)
    made
  }

  private def channel(folder: Path) =
    new ManagerChannel(
      Settings(new SparkConf(false).set(Settings.Manager, "h:1").set(Settings.TlsDir, folder.toString)))

  test("the managers of the driver's cluster have one name") {
    expect(TlsIdentity.managerName(folder(driver).resolve("tls.crt")), "manager.production.rhino")
  }

  test("a certificate of another role is refused with the way out") {
    fails[IllegalArgumentException]("rhino://production/operator/alice", "rhino cert driver")(
      TlsIdentity.managerName(folder(operator).resolve("tls.crt")))
  }

  test("a folder that lacks a file, or has one that is no certificate, is named") {
    val absent = folder(driver)
    Files.delete(absent.resolve("tls.key"))
    fails[IllegalArgumentException](s"${Settings.TlsDir} = $absent", "tls.key", "rhino cert driver")(
      channel(absent).current())
    val damaged = folder("no PEM")
    fails[IllegalArgumentException](s"${Settings.TlsDir} = $damaged", "rhino cert driver")(channel(damaged).current())
  }
}
