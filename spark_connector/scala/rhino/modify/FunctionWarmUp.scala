package rhino.spark.modify

import scala.concurrent.Await
import scala.concurrent.duration.{Deadline, Duration, DurationLong}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode, PythonWorkers}

/**
 * Makes the first change of a function as fast as later ones. Executors load a new function in a Python worker, beside
 * the tasks of a batch. If these have all workers, another one starts, which takes a second or longer: the change comes
 * late, or the batch that finds its worker taken. So each executor starts that worker before: a task takes a worker,
 * and waits until the batch has started what it needs besides. An executor never gets more workers than it runs tasks
 * at once. Then the present function is checked as a new one would be.
 */
private[modify] class FunctionWarmUp(
    function: PythonUDF, batch: IncrementalExecution, executors: () => Seq[(String, String)]) {

  /** For the thread that has the files of the query's thread. `batchMs`: how long a batch takes. */
  def run(due: Seq[Internals.Executor], batchMs: Long): Unit = {
    // With one slot, an executor loads functions between two tasks.
    startWorkers(PythonCode.warming(function), due.filter(_.slots > 1), batchMs)
    check()
  }

  private def startWorkers(warming: PythonUDF, due: Seq[Internals.Executor], batchMs: Long): Unit =
    if (due.nonEmpty) LimitedJob.run(batch.sparkSession.sparkContext, "Rhino starts Python workers for changes") {
      val maxMs = (FunctionWarmUp.KeptBatches * batchMs).min(FunctionWarmUp.KeepMaxMs)
      val places = due.map(its => its.slots -> Seq(Internals.executorPlace(its.host, its.id)))
      val tasks = batch.sparkSession.sparkContext.makeRDD(places)
      val rows = tasks.mapPartitions(slots => FunctionWarmUp.keep(slots.next(), maxMs))
      val plan = WorkerCall.of(warming, rows)
      val job = Internals.withArtifactsOf(batch.sparkSession) {
        plan.execute().mapPartitions(WorkerCall.errorOf).collectAsync()
      }
      val errors = Await.result(job, Duration.Inf)
      errors.headOption.foreach(error => throw new IllegalStateException(error))
    }

  private def check(): Unit = {
    val code = PythonCode.of(function).toArray
    val its = Modification(
      0, Modification.Function, function.name, removes = false, dryRun = true, code, function.evalType,
      function.dataType.json)
    CodeCheck.check(Seq(CodeCheck.replacing(code, function)), executors(), batch.sparkSession) {
      PlanCheck.check(its, batch, Nil)
    }
  }
}

private[modify] object FunctionWarmUp {
  private val KeptBatches = 2 // at most: the batch may have begun before the task
  private val KeepMaxMs = 2000L // less than spark.locality.wait: tasks wait for a slot where their state is
  private val PollMs = 10L

  /** No rows, which come when there is a worker more, or as many as `slots`, or after `maxMs`. */
  private def keep(slots: Int, maxMs: Long): Iterator[InternalRow] = {
    val (before, end) = (PythonWorkers.count, Deadline.now + maxMs.millis)
    def waits: Boolean = {
      val now = PythonWorkers.count
      now <= before && now < slots && end.hasTimeLeft()
    }
    new Iterator[InternalRow] {
      override def hasNext: Boolean = { while (waits) Thread.sleep(PollMs); false }
      override def next(): InternalRow = throw new NoSuchElementException
    }
  }
}
