package org.apache.spark.sql.execution.streaming.state
package seam

import java.lang.reflect.{AccessibleObject, Field, Method}

import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, ProcessingTimeExecutor, StreamExecution}
import org.apache.spark.util.Clock

/**
 * The time between two batches of a query. Spark calls nobody there. But the trigger asks its clock for the time before
 * it begins a batch. `MicroBatchExecution.triggerExecutor` is protected, and `ProcessingTimeExecutor.clock` a value.
 */
object BetweenBatches {
  private val trigger: Method = opened(classOf[MicroBatchExecution].getDeclaredMethod("triggerExecutor"))
  private val clock: Field = opened(classOf[ProcessingTimeExecutor].getDeclaredField("clock"))

  private def opened[T <: AccessibleObject](member: T): T = {
    member.setAccessible(true)
    member
  }

  /**
   * Has `act` called there, on the thread of the query: before each batch that begins from now on, perhaps also after
   * it. Returns false if the trigger has no clock, as the one that ends with the available data.
   */
  def call(stream: StreamExecution)(act: => Unit): Boolean = stream match {
    case batches: MicroBatchExecution =>
      trigger.invoke(batches) match {
        case its: ProcessingTimeExecutor =>
          clock.set(its, new ActingClock(its.clock, () => act))
          true
        case _ => false
      }
    case _ => false
  }

  private class ActingClock(its: Clock, act: () => Unit) extends Clock {
    override def getTimeMillis(): Long = {
      act()
      its.getTimeMillis()
    }
    override def nanoTime(): Long = its.nanoTime()
    override def waitTillTime(targetMs: Long): Long = its.waitTillTime(targetMs)
  }
}
