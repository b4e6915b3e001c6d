package rhino.spark.modify

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, PythonUDF}
import org.apache.spark.sql.execution.{RDDScanExec, SparkPlan}
import org.apache.spark.sql.execution.python.{ArrowEvalPythonExec, BatchEvalPythonExec}
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.LongType

/**
 * A plan whose tasks give a function to a Python worker. It gets the files of Spark Connect's clients that the calling
 * thread has. These must be the files of the query's thread: a batch has no others.
 */
private[modify] object WorkerCall {

  /** `rows`: what the function gets, one bigint each. Spark's planner would take longer than the job. */
  def of(udf: PythonUDF, rows: RDD[InternalRow]): SparkPlan = {
    val (input, made) = (AttributeReference("id", LongType)(), AttributeReference("made", LongType)())
    val scan = RDDScanExec(Seq(input), rows, "executors")
    val called = Seq(udf.copy(children = Seq(input)))
    if (PythonCode.isPlain(udf)) BatchEvalPythonExec(called, Seq(made), scan)
    else ArrowEvalPythonExec(called, Seq(made), scan, udf.evalType)
  }
}
