package rhino.spark.modify.checks

import scala.collection.immutable.ArraySeq
import scala.util.control.NonFatal

import org.apache.spark.{SparkContext, SparkThrowable}
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarToRowExec, SparkPlan}
import org.apache.spark.sql.types.StructType

import rhino.spark.modify.records.{TableRows, TableSource}

/** Reads the table of a join at its check. What it returns is what every batch sees. */
private[modify] object TableReader {
  private val BytesMax = 64L << 20
  /** Of a heap. Spark builds a hash table of the rows, and has both, and copies of both, while it broadcasts them. */
  private val Part = 32
  private val PartitionsMax = 8 // that are read by one job
  private val Cancelled = "SPARK_JOB_CANCELLED"

  /** Throws IllegalArgumentException. The jobs are cancelled after a minute. */
  def read(source: TableSource, session: SparkSession): TableRows =
    LimitedJob.run(session.sparkContext, "Rhino reads the table of a modification") {
      try session.withActive(collected(source, session))
      catch {
        case error: InterruptedException => throw error
        case NonFatal(error) if !error.isInstanceOf[IllegalArgumentException] =>
          throw new IllegalArgumentException(s"the table ${source.path} cannot be read: ${reason(error)}", error)
      }
    }

  private def collected(source: TableSource, session: SparkSession): TableRows = {
    val options = Map("mode" -> "FAILFAST") ++ source.options // Spark would make nulls of what it cannot parse
    val reader = session.read.format(source.format).options(options)
    val frame = (if (source.schema.isEmpty) reader else reader.schema(source.schema)).load(source.path)
    val schema = frame.schema
    val rdd = rowsOf(frame.queryExecution.sparkPlan).execute()
    val context = session.sparkContext
    val most = limit(context)
    // The driver would have the rows of many partitions in memory before it knows that they are too many.
    if (rdd.partitions.length > PartitionsMax)
      checkSize(context.runJob(rdd, (rows: Iterator[InternalRow]) => sizeOf(rows, schema, most)).sum, source, most)
    val parts = context.runJob(rdd, (rows: Iterator[InternalRow]) => copies(rows, schema, most))
    val all = ArraySeq.unsafeWrapArray(parts.flatten)
    checkSize(all.iterator.map(TableRows.sizeOf).sum, source, most)
    if (all.isEmpty) refuse(s"the table ${source.path} has no rows: a filter needs no table")
    TableRows(schema, all)
  }

  /** Spark would make Java code of it, and each executor would compile that for this table alone. */
  private def rowsOf(plan: SparkPlan): SparkPlan = if (plan.supportsColumnar) ColumnarToRowExec(plan) else plan

  private def checkSize(bytes: Long, source: TableSource, most: Long): Unit = if (bytes > most) refuse(
    s"the table ${source.path} has more than ${most >> 20} MiB of rows in memory, and driver and executors " +
      s"broadcast ${BytesMax >> 20} MiB at most, or 1/$Part of their memory: give a smaller one, with the rows and " +
      "columns that the join needs")

  private def limit(context: SparkContext): Long = {
    val executors = context.getConf.getSizeAsBytes("spark.executor.memory", "1g")
    math.min(BytesMax, math.min(Runtime.getRuntime.maxMemory, executors) / Part)
  }

  private def sizeOf(rows: Iterator[InternalRow], schema: StructType, most: Long): Long =
    limited(rows, schema, most).map(TableRows.sizeOf).sum

  private def copies(rows: Iterator[InternalRow], schema: StructType, most: Long): Array[UnsafeRow] =
    limited(rows, schema, most).map(_.copy()).toArray

  /** As far as the row that passes the limit. */
  private def limited(rows: Iterator[InternalRow], schema: StructType, most: Long): Iterator[UnsafeRow] = {
    val made = UnsafeProjection.create(schema)
    var bytes = 0L
    rows.map(made(_)).takeWhile { row =>
      val within = bytes <= most
      bytes += TableRows.sizeOf(row)
      within
    }
  }

  /** Spark's errors of reading quote rows. An outcome has none, so it names the conditions only. */
  private def reason(error: Throwable): String = error match {
    case known @ (_: AnalysisException | _: ParseException) => known.getMessage.trim
    case other =>
      val causes = Iterator.iterate(other)(_.getCause).takeWhile(_ != null).take(20).toSeq
      val conditions = causes.collect { case its: SparkThrowable => its.getCondition }.filter(_ != null).distinct
      if (conditions.contains(Cancelled)) "that took longer than a minute"
      else if (conditions.nonEmpty) conditions.mkString(", ")
      else causes.last.getClass.getName
  }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}
