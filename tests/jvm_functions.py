"""Jars with functions of Scala and Java, for tests of modifications. One compilation makes all of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from spark_connector.jar import compile_scala
from spark_connector.spark_home import spark_jars

SCORE = "com.acme.Score"  # value * factor + 1, as the present version and the new ones have it
SOURCE = """
package com.acme

import java.lang.{Integer => JavaInteger, Long => JavaLong}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.api.java.UDF1

class Score extends UDF1[JavaLong, JavaLong] {
  private val factor = {
    val text = getClass.getResourceAsStream("/factor.txt")
    try new String(text.readAllBytes()).trim.toLong finally text.close()
  }
  override def call(value: JavaLong): JavaLong = value * factor + 1
}

class Minus extends (JavaLong => JavaLong) with Serializable {
  override def apply(value: JavaLong): JavaLong = -value
}

class Doubled extends (Long => Long) {
  override def apply(value: Long): Long = value * 2
}

/** What an application in Scala does. Its function has Spark's encoders. */
class Application {
  def register(spark: SparkSession): Unit = {
    spark.udf.register("shift", (value: Long) => value + 1)
    ()
  }
}

class Whole extends UDF1[JavaLong, JavaInteger] {
  override def call(value: JavaLong): JavaInteger = 1
}

class Fails extends UDF1[JavaLong, JavaLong] {
  override def call(value: JavaLong): JavaLong = throw new IllegalStateException(s"no score for $value")
}
"""


def build(folder: Path) -> Path:
    """Compiles the classes. Returns their folder. Raises UnavailableError with the compiler's messages."""
    _, jars = spark_jars()
    source = folder / "functions.scala"
    source.write_text(SOURCE)
    compile_scala(jars, [source], folder / "classes")
    return folder / "classes"


def jar_of(classes: Path, path: Path, *, factor: int) -> Path:
    """Writes a jar with all of the classes. In it, `SCORE` multiplies by `factor`."""
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("factor.txt", str(factor))
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes).as_posix())
    return path
