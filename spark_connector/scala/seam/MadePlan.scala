package org.apache.spark.sql.execution.streaming.state
package seam

import java.lang.reflect.{AccessibleObject, Field, Method}

import scala.util.Try

import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.util.LazyTry

/**
 * Reads plans that Spark's own threads have made. `QueryExecution.executedPlan` would make a missing plan on the
 * calling thread, concurrently with the query's thread. Planning also writes the schemas of the query's state. Spark
 * has no other way to ask: `LazyTry` is private[spark], and its fields are private.
 */
object MadePlan {
  private val lazyPlan: Method = opened(classOf[QueryExecution].getDeclaredMethod("lazyExecutedPlan"))
  // Volatile: if it is set, the result is visible.
  private val made: Field = opened(classOf[LazyTry[_]].getDeclaredField("bitmap$0"))
  private val result: Field = opened(classOf[LazyTry[_]].getDeclaredField("tryT"))

  private def opened[T <: AccessibleObject](member: T): T = {
    member.setAccessible(true)
    member
  }

  /** The plan that Spark executes. None if it is not made yet, or if planning failed. */
  def of(execution: QueryExecution): Option[SparkPlan] = {
    val plan = lazyPlan.invoke(execution)
    if (made.getBoolean(plan)) result.get(plan).asInstanceOf[Try[SparkPlan]].toOption else None
  }
}
