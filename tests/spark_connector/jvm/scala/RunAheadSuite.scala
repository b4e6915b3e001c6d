package rhino.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Add, Alias, AttributeReference, Expression, GreaterThan, Literal, Rand, ScalaUDF}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory, Scan}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset}
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec
import org.apache.spark.sql.execution.streaming.state.seam.{PythonFunctions, TrialBatch}
import org.apache.spark.sql.types.{LongType, StructType}

import rhino.spark.modify.{PointFilterExec, RunAhead}

/** What an executor may run over a few rows before the first batch with a modification. */
class RunAheadSuite extends Suite {
  private val value = AttributeReference("value", LongType)()
  private val scan = MicroBatchScanExec(
    Seq(value), Nothing, RunAheadSuite.Counting, RunAheadSuite.Zero, RunAheadSuite.Zero, None, None)

  private object Nothing extends Scan { override def readSchema(): StructType = new StructType }

  private def stage(expression: Expression, child: SparkPlan): SparkPlan =
    WholeStageCodegenExec(ProjectExec(Seq(Alias(expression, "y")()), child))(1)

  private val plus = stage(Add(value, Literal(1L)), scan)

  test("what only Spark's own code makes from a source is run, up to the first exchange") {
    expect(RunAhead.parts(Plans.exchange(plus)), Seq(plus))
    expect(RunAhead.parts(stage(Add(value, Literal(2L)), Plans.stateful(0, Plans.exchange(plus)))), Seq(plus))
  }

  test("what a modification has put at a point is run, too") {
    val filtered = PointFilterExec(GreaterThan(value, Literal(1L)), plus)
    expect(RunAhead.parts(Plans.exchange(filtered)), Seq(filtered))
  }

  test("functions of users, and what may differ from call to call, are not run") {
    val twice = ScalaUDF((x: Long) => 2 * x, LongType, Seq(value), udfName = Some("twice"))
    expect(RunAhead.parts(stage(twice, scan)), Nil)
    expect(RunAhead.parts(stage(Rand(Literal(1L)), scan)), Nil)
    expect(RunAhead.parts(stage(twice, plus)), Seq(plus))
  }

  test("a Python function is run only as a blank") {
    def calling(code: Byte): SparkPlan = stage(PythonFunctions.of(Seq(code), value), scan)
    val (blank, blanks) = (calling(1), Set(Seq[Byte](1)))
    expect(RunAhead.parts(Plans.exchange(blank), blanks), Seq(blank))
    expect(RunAhead.parts(Plans.exchange(blank)), Nil)
    expect(RunAhead.parts(Plans.exchange(calling(2)), blanks), Nil)
  }

  test("a plan without generated code, and one that reads something else than a source, are not run") {
    expect(RunAhead.parts(FilterExec(Literal(true), scan)), Nil)
    expect(RunAhead.parts(stage(Literal(1L), Plans.scan)), Nil)
  }

  test("a trial reads few rows of a partition, and closes it") {
    RunAheadSuite.closed = 0
    val factory = TrialBatch.source(scan, rows = 3).createReaderFactory()
    val reader = factory.createReader(RunAheadSuite.All)
    val read = Iterator.continually(reader.next()).takeWhile(identity).map(_ => reader.get().getLong(0)).toSeq
    reader.close()
    expect((read, RunAheadSuite.closed), (Seq(1L, 2L, 3L), 1))
  }
}

object RunAheadSuite {
  private var closed = 0

  private object All extends InputPartition
  private object Zero extends Offset { override def json(): String = "0" }

  /** Endless rows. */
  private object Counting extends MicroBatchStream with PartitionReaderFactory {
    override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = Array(All)
    override def createReaderFactory(): PartitionReaderFactory = this
    override def latestOffset(): Offset = Zero
    override def initialOffset(): Offset = Zero
    override def deserializeOffset(json: String): Offset = Zero
    override def commit(end: Offset): Unit = ()
    override def stop(): Unit = ()

    override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
      new PartitionReader[InternalRow] {
        private var row = 0L
        override def next(): Boolean = { row += 1; true }
        override def get(): InternalRow = InternalRow(row)
        override def close(): Unit = closed += 1
      }
  }
}
