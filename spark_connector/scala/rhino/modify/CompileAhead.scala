package rhino.spark.modify

import java.util.concurrent.{ExecutionException, FutureTask, TimeUnit, TimeoutException}

import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.codegen.{CodeAndComment, CodeGenerator}
import org.apache.spark.sql.catalyst.optimizer.BuildLeft
import org.apache.spark.sql.execution.{InputAdapter, LocalTableScanExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.datasources.v2.{MicroBatchScanExec, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.joins.{BroadcastHashJoinExec, BroadcastNestedLoopJoinExec}
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, MadePlan, TrialBatch}

/**
 * Compiles the Java code of the next batch before that batch is planned. Another filter or column makes another plan,
 * for which Spark generates other code. Without this, the driver and then every executor would compile it within the
 * first batch. Spark keeps compiled classes by their source text, so whatever compiles the same text serves the batch.
 */
private[modify] object CompileAhead extends AdaptiveSparkPlanHelper with Logging {
  private val PlanMs = 1000L
  private val PollMs = 5L

  /**
   * Starts to compile what a query needs with the modifications `next`, on the driver and on the executors. Returns
   * when that is done, or after `waitMs`, which may be 0 or less: then it goes on beside. A failure only makes the
   * batch slower.
   */
  def attempt(
      stream: StreamExecution, next: Seq[Modification], executors: Seq[(String, String)], waitMs: Long): Unit = {
    val task = new FutureTask[Unit](() => compile(stream, next, executors), ())
    val thread = new Thread(task, "rhino-compile-ahead")
    thread.setDaemon(true)
    // Part of the key of a compiled class.
    thread.setContextClassLoader(stream.queryExecutionThread.getContextClassLoader)
    thread.start()
    try task.get(waitMs, TimeUnit.MILLISECONDS)
    catch {
      case _: TimeoutException => ()
      case error: ExecutionException => logWarning(s"query ${stream.id}: compiling ahead has failed", error)
    }
  }

  private def compile(
      stream: StreamExecution, next: Seq[Modification], executors: Seq[(String, String)]): Unit = {
    val started = System.nanoTime()
    try {
      val batch = planned(stream)
      val session = batch.sparkSession
      val found = LimitedJob.run(session.sparkContext, "Rhino compiles the code of a modified batch") {
        val found = sources(batch, next)
        val places = executors.map { case (host, id) => found -> Seq(Internals.executorPlace(host, id)) }
        val elsewhere = // at the same time as this process
          if (places.isEmpty) None
          else Some(session.sparkContext.makeRDD(places).foreachAsync(_.foreach(compiled)))
        found.foreach(compiled)
        elsewhere.foreach(Await.result(_, Duration.Inf))
        found
      }
      logInfo(s"query ${stream.id}: the code of the next batch, ${found.size} classes, was compiled in " +
        s"${(System.nanoTime() - started) / 1000000} ms")
    } catch {
      case NonFatal(error) => // Spark's planner and compiler have no common class
        logInfo(s"query ${stream.id}: the code of the next batch cannot be compiled ahead", error)
    }
  }

  /** Spark runs code that cannot be compiled in another way. A task that failed would speak against its executor. */
  private def compiled(code: CodeAndComment): Unit = Try(CodeGenerator.compile(code))

  /** The newest batch. Its thread may be planning it just now. */
  private def planned(stream: StreamExecution): IncrementalExecution = {
    val polls = Iterator.fill((PlanMs / PollMs).toInt) { Thread.sleep(PollMs); stream.lastExecution }
    (Iterator(stream.lastExecution) ++ polls).find(MadePlan.of(_).nonEmpty).getOrElse(
      throw new IllegalStateException("no batch is planned yet"))
  }

  /**
   * The Java code of a batch like this one with these modifications, without operators whose code can be generated only
   * by running a part of the batch. Tables of joins at points are broadcast for it.
   */
  def sources(batch: IncrementalExecution, next: Seq[Modification]): Seq[CodeAndComment] = {
    val made = MadePlan.of(batch).getOrElse(throw new IllegalStateException("the batch is not planned"))
    val session = batch.sparkSession
    session.withActive {
      val plan = Overlay(batch.logical.clone(), next, session).transform {
        case relation: StreamingDataSourceV2ScanRelation =>
          val planned = collectFirst(made) { case scan: MicroBatchScanExec if scan.stream eq relation.stream => scan }
          relation.copy(stream = TrialBatch.source(planned.getOrElse(
            throw new IllegalStateException(s"the batch does not read ${relation.name}"))))
      }
      generated(TrialBatch.like(batch, plan).executedPlan)
    }
  }

  /** No other thread may generate the code of the same plan: its operators keep names of variables meanwhile. */
  def generated(plan: SparkPlan): Seq[CodeAndComment] =
    collect(plan) {
      case stage: WholeStageCodegenExec if !broadcasts(stage.child) => Try(stage.doCodeGen()._2).toOption
    }.flatten.distinct

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
