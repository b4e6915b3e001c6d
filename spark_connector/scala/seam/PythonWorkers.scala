package org.apache.spark.sql.execution.streaming.state
package seam

import java.lang.reflect.Field
import java.net.StandardSocketOptions.TCP_NODELAY
import java.nio.channels.{ClosedChannelException, SocketChannel}

import scala.collection.mutable

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.{PythonWorker, PythonWorkerFactory}

/**
 * The Python workers of this process. `SparkEnv.pythonWorkers` is private, and so are `daemonWorkers` and
 * `lastActivityNs` of `PythonWorkerFactory`.
 */
object PythonWorkers {
  private val factories = field(classOf[SparkEnv], "pythonWorkers")
  private val workers = field(classOf[PythonWorkerFactory], "daemonWorkers")

  private lazy val lastUsed = { // its name begins with that of its class, because another class of Spark reads it
    val names = classOf[PythonWorkerFactory].getDeclaredFields.map(_.getName)
    val name = names.find(_.endsWith("lastActivityNs")).getOrElse(throw new NoSuchFieldException("lastActivityNs"))
    field(classOf[PythonWorkerFactory], name)
  }

  private def field(of: Class[_], name: String): Field = {
    val its = of.getDeclaredField(name)
    its.setAccessible(true)
    its
  }

  /** How many there are for the environment that has most. */
  def count: Int = each(_.size).maxOption.getOrElse(0)

  /** Spark then regards its workers as used just now. */
  def keep(): Unit = all.foreach(its => its.synchronized(lastUsed.setLong(its, System.nanoTime())))

  /**
   * Sends to a worker what there is to send. Spark sends a function first, and then rows. TCP would hold few rows back
   * until the worker has confirmed the function, and a worker that has nothing to answer confirms after 40 ms.
   */
  def sendAtOnce(): Unit =
    channels.filter(_.supportedOptions.contains(TCP_NODELAY)).foreach { its =>
      try its.setOption(TCP_NODELAY, java.lang.Boolean.TRUE)
      catch { case _: ClosedChannelException => () } // its worker has ended
    }

  def channels: Seq[SocketChannel] = each(_.keys.map(_.channel).toSeq).flatten

  /** May wait until a worker has started. */
  private def each[T](act: mutable.Map[PythonWorker, _] => T): Seq[T] =
    all.map(its => its.synchronized(act(workers.get(its).asInstanceOf[mutable.Map[PythonWorker, _]])))

  private def all: Seq[PythonWorkerFactory] = {
    val env = SparkEnv.get
    env.synchronized { factories.get(env).asInstanceOf[mutable.Map[_, PythonWorkerFactory]].values.toSeq }
  }
}
