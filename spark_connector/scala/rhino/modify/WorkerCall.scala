package rhino.spark.modify

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, PythonUDF}
import org.apache.spark.sql.execution.RDDScanExec
import org.apache.spark.sql.execution.python.{ArrowEvalPythonExec, BatchEvalPythonExec}
import org.apache.spark.sql.execution.streaming.state.seam.PythonCode
import org.apache.spark.sql.types.LongType

/** A function that each task gives to a Python worker. */
private[modify] object WorkerCall {

  /** `rows`: what the function gets, one bigint each. Spark's planner would take longer than the job. */
  def of(udf: PythonUDF, rows: RDD[InternalRow]): RDD[InternalRow] = {
    val (input, made) = (AttributeReference("id", LongType)(), AttributeReference("made", LongType)())
    val scan = RDDScanExec(Seq(input), rows, "executors")
    val called = Seq(udf.copy(children = Seq(input)))
    val plan =
      if (PythonCode.isPlain(udf)) BatchEvalPythonExec(called, Seq(made), scan)
      else ArrowEvalPythonExec(called, Seq(made), scan, udf.evalType)
    plan.execute()
  }
}
