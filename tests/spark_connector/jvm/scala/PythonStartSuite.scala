package rhino.spark

import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import rhino.spark.modify.PythonStart

/** Which Python an executor has, before a worker of it is started. */
class PythonStartSuite extends Suite {
  private def script(body: String): String = {
    val file = Files.createTempFile("python", ".sh")
    file.toFile.deleteOnExit()
    Files.writeString(file, s"#!/bin/sh\n$body\n")
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwx------")).toString
  }

  test("a Python tells its version as a worker compares it") {
    expect(PythonStart.versionOf("python3").exists(_.matches("3\\.\\d+")), true)
  }

  test("an executable that is not there, or that is no Python, is named") {
    expect(PythonStart.versionOf("/nowhere/python").left.exists(_.contains("/nowhere/python")), true)
    val silent = script("exit 1")
    expect(PythonStart.versionOf(silent), Left(s"$silent does not tell its version"))
  }
}
