package rhino.spark.driver

import rhino.spark.wire.Resources

/** The minor version of Spark that this jar was compiled for. Another one has other internal classes. */
private[spark] object SparkOfJar {
  lazy val version: String = Resources.text("/rhino/spark-version")

  def check(running: String, compiled: String = version): Unit =
    if (!running.startsWith(compiled + ".")) throw new IllegalArgumentException(
      s"this Rhino jar is for Spark $compiled, and this is Spark $running: use the jar that " +
        s"`rhino jar` prints where this Spark is installed")
}
