package rhino.spark.modify

import java.lang.ProcessBuilder.Redirect
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Try

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution
import org.apache.spark.sql.execution.streaming.state.seam.{Internals, PythonCode}

/**
 * Starts Python workers for functions that a query does not have yet. Each worker imports PySpark, pandas and PyArrow,
 * which takes most of a second, and several seconds beside busy batches. The first function at a point would wait for
 * that. Then a function that nobody has asked for is checked as that one would be.
 */
private[modify] class PythonStart(batch: IncrementalExecution, executors: () => Seq[(String, String)]) {
  private val session = batch.sparkSession
  private val context = session.sparkContext

  /**
   * For a thread that has the files of the query's thread. `due`: these get a worker for every task that they run at
   * once. Returns their version of Python. Throws IllegalStateException or IllegalArgumentException with its error.
   */
  def run(due: Seq[Internals.Executor]): String = {
    val version = startWorkers(due)
    MadeUpChanges.of(batch.logical, Some(version)).headOption.foreach { its =>
      CodeCheck.check(CodeCheck.inserted(its, batch.logical, session), executors(), session) {
        PlanCheck.check(its, batch, Nil)
      }
    }
    version
  }

  private def startWorkers(due: Seq[Internals.Executor]): String =
    LimitedJob.run(context, "Rhino starts Python workers for changes") {
      val executable = PythonCode.executable(Internals.conf(context))
      val versions = context.makeRDD(due.map(executable -> placeOf(_))).map(PythonStart.versionOf).collect().toSeq
      val started = versions.zip(due).groupMap(_._1)(_._2).map { case (found, same) =>
        val version = found.fold(error => throw new IllegalStateException(error), identity)
        // One more by each job, which so holds a slot for a short time: tasks wait for a slot where their state is.
        (1 to same.map(_.slots).max).foreach(count => start(count, same.filter(_.slots >= count), version))
        version
      }
      started.head
    }

  /** Functions that get their rows from one another within one task have a worker each. */
  private def start(count: Int, due: Seq[Internals.Executor], version: String): Unit = {
    val importing = PythonCode.loading("imports", MadeUpCode.Imports, version, context)
    val tasks = context.makeRDD(due.map(() -> placeOf(_))).mapPartitions(_ => Iterator.empty[InternalRow])
    val rows = (1 to count).foldLeft(tasks)((below, _) => WorkerCall.of(importing, below).execute())
    val errors = Internals.withArtifactsOf(session)(rows.mapPartitions(WorkerCall.errorOf).collect())
    errors.headOption.foreach(error => throw new IllegalStateException(error))
  }

  private def placeOf(its: Internals.Executor): Seq[String] = Seq(Internals.executorPlace(its.host, its.id))
}

private[spark] object PythonStart {
  private val Version = "import sys; print('%d.%d' % sys.version_info[:2])"

  /** Of the Python that this executor has, or why it has none. A worker of another version than told loads nothing. */
  def versionOf(executable: String): Either[String, String] = Try {
    val process = new ProcessBuilder(executable, "-c", Version).redirectError(Redirect.DISCARD).start()
    process.getOutputStream.close()
    new String(process.getInputStream.readAllBytes(), UTF_8).trim
  }.toEither.left.map(_.getMessage).filterOrElse(_.nonEmpty, s"$executable does not tell its version")
}
