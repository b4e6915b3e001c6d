package org.apache.spark.sql.execution.streaming.state
package seam

import java.lang.reflect.Field
import java.net.StandardSocketOptions.TCP_NODELAY
import java.nio.channels.{ClosedChannelException, SocketChannel}

import scala.collection.mutable

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.{PythonWorker, PythonWorkerFactory}

/** The Python workers of this process. `SparkEnv.pythonWorkers` and `PythonWorkerFactory.daemonWorkers` are private. */
object PythonWorkers {
  private val factories = field(classOf[SparkEnv], "pythonWorkers")
  private val workers = field(classOf[PythonWorkerFactory], "daemonWorkers")

  private def field(of: Class[_], name: String): Field = {
    val its = of.getDeclaredField(name)
    its.setAccessible(true)
    its
  }

  /** How many there are for the environment that has most. */
  def count: Int = each(_.size).maxOption.getOrElse(0)

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
  private def each[T](act: mutable.Map[PythonWorker, _] => T): Seq[T] = {
    val env = SparkEnv.get
    val all = env.synchronized {
      factories.get(env).asInstanceOf[mutable.Map[_, PythonWorkerFactory]].values.toSeq
    }
    all.map(its => its.synchronized(act(workers.get(its).asInstanceOf[mutable.Map[PythonWorker, _]])))
  }
}
