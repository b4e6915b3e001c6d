package rhino.spark.modify

import java.util.concurrent.CompletableFuture

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.Try
import scala.util.control.{ControlThrowable, NonFatal}

import org.apache.spark.FutureAction
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.codegen.{CodeAndComment, CodeGenerator}
import org.apache.spark.sql.catalyst.optimizer.BuildLeft
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{InputAdapter, LocalTableScanExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.datasources.v2.{MicroBatchScanExec, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.joins.{BroadcastHashJoinExec, BroadcastNestedLoopJoinExec}
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, MadePlan, TrialBatch}

/**
 * Prepares the next batch before it is planned. If a point needs other columns, Spark generates other Java code.
 * Without this, the driver and then every executor would compile it within the first batch, and the executors would
 * interpret it until it is translated. Spark keeps compiled classes by their source text, so whatever compiles the
 * same text serves the batch. Executors also get the table of a join, and run blanks of the functions at a point.
 */
private[modify] object CompileAhead extends AdaptiveSparkPlanHelper with Logging {
  private val Rehearsals = 2
  private val TrialRows = 500 // of a partition. With 256, new code was still interpreted afterwards

  /** A batch is planned with the modifications before this object has planned it. */
  private object TooLate extends ControlThrowable

  /**
   * Starts to prepare what a query needs with the modifications `next`, on the driver and on the executors. The result
   * tells when that is done. Executors keep the tables of joins as long as it is there. It does nothing if the newest
   * batch has the same code, as `same` says, and gives up if a batch is planned first, as `bound` says. A failure only
   * makes the batch slower.
   */
  def start(
      stream: StreamExecution, newest: IncrementalExecution, next: Seq[Modification], executors: Seq[(String, String)])(
      same: IncrementalExecution => Boolean, bound: => Boolean): CompletableFuture[Option[SparkPlan]] = {
    def goOn(): Unit = if (bound) throw TooLate
    val done = new CompletableFuture[Option[SparkPlan]]
    val thread = new Thread(
      () => {
        var trial = Option.empty[SparkPlan]
        try trial = prepare(stream, newest, next, executors)(same, () => goOn())
        finally { done.complete(trial); () }
      }, "rhino-compile-ahead")
    thread.setDaemon(true)
    // Part of the key of a compiled class.
    thread.setContextClassLoader(stream.queryExecutionThread.getContextClassLoader)
    thread.start()
    done
  }

  private def prepare(
      stream: StreamExecution, batch: IncrementalExecution, next: Seq[Modification], executors: Seq[(String, String)])(
      same: IncrementalExecution => Boolean, goOn: () => Unit): Option[SparkPlan] = {
    val started = System.nanoTime()
    def ms: Long = (System.nanoTime() - started) / 1000000
    try {
      if (same(batch)) None
      else {
        val tried = next.map(_.blanked)
        val trial = planned(batch, tried, goOn)
        val planMs = ms
        compile(stream, batch.sparkSession, trial, executors, tried)
        logInfo(s"query ${stream.id}: the next batch was planned in $planMs ms, and its code was ready after $ms ms")
        Some(trial)
      }
    } catch {
      case TooLate =>
        logInfo(s"query ${stream.id}: the next batch began before it was planned ahead, after $ms ms")
        None
      case NonFatal(error) => // Spark's planner and compiler have no common class
        logInfo(s"query ${stream.id}: the code of the next batch cannot be compiled ahead", error)
        None
    }
  }

  /**
   * Does the same without a modification, while a run is young. All code is there already, so it is compiled again, as
   * other texts. The first preparation of a process would take twice the time: it loads classes for that, and
   * interprets the compiler. Then it prepares changes that nobody has asked for, see `MadeUpChanges`.
   */
  def rehearse(
      stream: StreamExecution, batch: IncrementalExecution, executors: Seq[(String, String)],
      changes: Seq[Modification]): Unit = {
    compile(stream, batch.sparkSession, planned(batch, Nil, () => ()), executors, Nil, again = Rehearsals)
    changes.map(change => Seq(change.blanked)).foreach { its =>
      compile(stream, batch.sparkSession, planned(batch, its, () => ()), executors, its)
    }
  }

  private def compile(
      stream: StreamExecution, session: SparkSession, trial: SparkPlan, executors: Seq[(String, String)],
      tried: Seq[Modification], again: Int = 0): Unit = {
    val places = executors.map { case (host, id) => Seq(Internals.executorPlace(host, id)) }
    LimitedJob.run(session.sparkContext, "Rhino compiles the code of a modified batch") {
      Internals.withArtifacts(stream) {
        val parts = RunAhead.parts(trial, tried.flatMap(_.functions).map(_.blank.toSeq).filter(_.nonEmpty).toSet)
        val running = run(session, parts, if (places.isEmpty) Seq(Nil) else places)
        val done = if (running.isEmpty || again > 0) Nil else parts
        val left = session.withActive(generated(trial, without = done))
        val others = compileElsewhere(left ++ Seq.fill(again)(left.map(another)).flatten, places, session)
        (running ++ others).foreach(Await.result(_, Duration.Inf))
      }
    }
  }

  /** Compiles parts of a plan in this process and, with all that belongs to them, in those that run them. */
  private def run(
      session: SparkSession, parts: Seq[SparkPlan], places: Seq[Seq[String]]): Option[FutureAction[Unit]] = {
    val compiled = session.withActive(parts.map(_.execute())).filter(_.partitions.nonEmpty)
    if (compiled.isEmpty) None else Some(new RunAhead(compiled, places).foreachAsync(_ => ()))
  }

  /** What this process has compiled before, the executors have had to compile for the same batch. */
  private def compileElsewhere(
      found: Seq[CodeAndComment], places: Seq[Seq[String]], session: SparkSession): Option[FutureAction[Unit]] = {
    val before = CodeGenerator.compileTime // also of other threads: a job more would do no harm
    found.foreach(compiled)
    if (places.isEmpty || CodeGenerator.compileTime == before) None
    else Some(session.sparkContext.makeRDD(places.map(found -> _)).foreachAsync(_.foreach(compiled)))
  }

  /** The same code as a text that no process has compiled. */
  private def another(its: CodeAndComment): CodeAndComment =
    new CodeAndComment(s"${its.body}\n// ${System.nanoTime()}\n", its.comment)

  /** Spark runs code that cannot be compiled in another way. A task that failed would speak against its executor. */
  private def compiled(code: CodeAndComment): Unit = Try(CodeGenerator.compile(code))

  /**
   * The Java code of a batch like this one with these modifications, without operators whose code can be generated only
   * by running a part of the batch. Tables of joins at points are broadcast for it.
   */
  def sources(batch: IncrementalExecution, next: Seq[Modification]): Seq[CodeAndComment] =
    batch.sparkSession.withActive(generated(planned(batch, next, () => ())))

  /** A batch like this one with these modifications. Its source has few rows. `goOn` may end this by an error. */
  private def planned(batch: IncrementalExecution, next: Seq[Modification], goOn: () => Unit): SparkPlan = {
    val made = MadePlan.of(batch).getOrElse(throw new IllegalStateException("the batch is not planned"))
    val session = batch.sparkSession
    session.withActive {
      val plan = Overlay.of(batch, next).transform {
        case relation: StreamingDataSourceV2ScanRelation =>
          val planned = collectFirst(made) { case scan: MicroBatchScanExec if scan.stream eq relation.stream => scan }
          relation.copy(stream = TrialBatch.source(
            planned.getOrElse(throw new IllegalStateException(s"the batch does not read ${relation.name}")),
            TrialRows))
      }
      val trial = TrialBatch.like(batch, plan)
      Seq(() => trial.analyzed, () => trial.optimizedPlan, () => trial.sparkPlan).foreach { step =>
        goOn()
        step()
      }
      trial.executedPlan
    }
  }

  /** No other thread may generate the code of the same plan: its operators keep names of variables meanwhile. */
  def generated(plan: SparkPlan): Seq[CodeAndComment] = generated(plan, without = Nil)

  private def generated(plan: SparkPlan, without: Seq[SparkPlan]): Seq[CodeAndComment] = {
    val elsewhere = without.flatMap(collect(_) { case stage: WholeStageCodegenExec => stage })
    collect(plan) {
      case stage: WholeStageCodegenExec if !broadcasts(stage.child) && !elsewhere.exists(_ eq stage) =>
        Try(stage.doCodeGen()._2).toOption
    }.flatten.distinct
  }

  /** The code of such a join is generated with its table. That would be read, unless the plan has its rows. */
  private def broadcasts(plan: SparkPlan): Boolean = plan match {
    case join: BroadcastHashJoinExec =>
      val table = if (join.buildSide == BuildLeft) join.left else join.right
      !table.collectLeaves().forall(_.isInstanceOf[LocalTableScanExec]) || join.children.exists(broadcasts)
    case _: BroadcastNestedLoopJoinExec => true
    case _: InputAdapter => false // another stage
    case other => other.children.exists(broadcasts)
  }
}
