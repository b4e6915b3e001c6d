package org.apache.spark.sql.execution.streaming.state
package seam

import java.io.IOException
import java.lang.reflect.Field
import java.nio.file.{Path => NioPath, Paths => NioPaths}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.{JobArtifactSet, JobArtifactState, SparkConf, SparkContext, SparkEnv}
import org.apache.spark.scheduler.{ExecutorCacheTaskLocation, ExecutorProcessLost, SparkListener}
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages.RemoveExecutor
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.util.Utils

/** Members of Spark that are private to it, and that Rhino only calls: one function for each. */
object Internals {

  /**
   * The application's settings themselves. `SparkContext.getConf` returns a copy. `SparkContext.conf` is
   * private[spark].
   */
  def conf(context: SparkContext): SparkConf = context.conf

  /**
   * The streaming queries that run on this driver. `SharedState.activeStreamingQueries` is private[sql]; the public
   * `StreamingQueryManager` knows the queries of one session only.
   */
  def runningQueries: Seq[StreamExecution] =
    SparkSession.getDefaultSession.orElse(SparkSession.getActiveSession).toSeq.flatMap {
      _.sharedState.activeStreamingQueries.asScala.values.collect { case stream: StreamExecution => stream }
    }

  /**
   * The query's own session: a copy from its start, without settings that the application makes for its next query.
   * `StreamExecution.sparkSessionForStream` is protected[sql].
   */
  def session(stream: StreamExecution): SparkSession = stream.sparkSessionForStream

  /**
   * Spark's own error for a version with missing files, which its users and tools know. `QueryExecutionErrors` is
   * private[sql].
   */
  def missingStateFile(path: Path, cause: IOException): Throwable =
    QueryExecutionErrors.failedToReadStreamingStateFileError(path, cause)

  /** The preferred place of a task that should run on this executor. `ExecutorCacheTaskLocation` is private[spark]. */
  def executorPlace(host: String, executor: String): String = ExecutorCacheTaskLocation(host, executor).toString

  /**
   * Plans and submits jobs as the thread of the query does: executors keep classes and files of Spark Connect's
   * sessions apart. `StreamExecution.jobArtifactState` is private, `JobArtifactSet` private[spark].
   */
  def withArtifacts[T](stream: StreamExecution)(act: => T): T =
    Option(artifacts.get(stream).asInstanceOf[JobArtifactState]).fold(act)(
      JobArtifactSet.withActiveJobArtifactState(_)(act))

  /**
   * Submits jobs as Spark does for a batch that is planned: with what the session of the batch has, if it has any, and
   * not with what its plan was made with. `SparkSession.artifactManager` is private[sql].
   */
  def withArtifactsOf[T](session: SparkSession)(act: => T): T = session.artifactManager.withResources(act)

  /**
   * Whether Spark has made the query's checkpoint, because the application named none, and deletes it after the run.
   * `StreamExecution.deleteCheckpointOnStop` is private.
   */
  def isTemporary(stream: StreamExecution): Boolean = temporary.getBoolean(stream)

  /**
   * Drops an executor, as `HeartbeatReceiver` does after Spark's own time-out: its tasks fail, it is killed if somebody
   * can reach it, and another one is asked for. All of this is private[spark].
   */
  def drop(context: SparkContext, executor: String, why: String): Unit = {
    val reason = ExecutorProcessLost(why)
    context.taskScheduler.executorLost(executor, reason)
    val end = new Thread(() => { // the cluster manager may not answer
      context.killAndReplaceExecutor(executor)
      context.schedulerBackend match {
        case backend: CoarseGrainedSchedulerBackend => backend.driverEndpoint.send(RemoveExecutor(executor, reason))
        case _ => // a local one has one executor
      }
    }, s"rhino-drop-$executor")
    end.setDaemon(true)
    end.start()
  }

  /**
   * Whether an executor is being decommissioned: Spark gives it no more tasks. `SparkContext.taskScheduler` is
   * private[spark], and null in a stopped context.
   */
  def isDecommissioned(context: SparkContext, executor: String): Boolean =
    Option(context.taskScheduler).exists(_.getExecutorDecommissionState(executor).isDefined)

  /** Has the listener called by a thread of its own: what delays another listener, or loses its events, does not. */
  def listen(context: SparkContext, listener: SparkListener): Unit =
    context.listenerBus.addToQueue(listener, "rhino")

  /**
   * The folders that this JVM has in Spark's folders for local files, for blocks and for all else. Spark deletes them
   * when the JVM ends by itself. `DiskBlockManager` and `Utils` are private[spark].
   */
  def localFolders(env: SparkEnv): Seq[NioPath] =
    (env.blockManager.diskBlockManager.localDirs.map(_.toPath) ++
      Utils.getOrCreateLocalRootDirs(env.conf).map(NioPaths.get(_))).toSeq

  private lazy val artifacts = opened("jobArtifactState")
  private lazy val temporary = opened("deleteCheckpointOnStop")

  private def opened(name: String): Field = {
    val field = classOf[StreamExecution].getDeclaredField(name)
    field.setAccessible(true)
    field
  }
}
