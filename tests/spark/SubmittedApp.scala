package submitted

import java.nio.file.{Files, Paths}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.Trigger

/** The same as submitted_app.py, for cluster mode, which Spark standalone has for JVM applications only. */
object SubmittedApp {
  def main(arguments: Array[String]): Unit = {
    val Seq(rows, checkpoint, result) = arguments.toSeq: @unchecked
    val spark = SparkSession.builder().appName("submitted").getOrCreate()
    val counts = spark.readStream.option("maxFilesPerTrigger", 1).text(rows).groupBy("value").count()
    val output = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    val query = output.option("checkpointLocation", checkpoint).trigger(Trigger.AvailableNow()).start()
    query.awaitTermination()
    val found = spark.table("counts").collect().map(row => s""""${row.getString(0)}": ${row.getLong(1)}""")
    val served = query.recentProgress.map(_.stateOperators.head.customMetrics.containsKey("rhinoCommitMs"))
    val text = s"""{"counts": {${found.mkString(", ")}}, "rhino": [${served.mkString(", ")}]}"""
    Files.writeString(Paths.get(result), text)
    spark.stop()
  }
}
