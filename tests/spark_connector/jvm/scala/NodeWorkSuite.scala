package rhino.spark

import rhino.spark.driver.{EndedTask, NodeWork, PlanCounter, TaskGroup}
import rhino.spark.wire.Schema.Fields

class NodeWorkSuite extends Suite {
  private val group = TaskGroup(Seq(0), 2)
  private val counters = Map(10L -> PlanCounter(group, isRows = true), 11L -> PlanCounter(group, isRows = false))

  private def work(): NodeWork = {
    val its = new NodeWork
    its.planned(counters)
    its
  }

  private def task(partition: Int, rows: Long, stage: Int = 1) =
    EndedTask(stage, partition, ranMs = 500, Map(10L -> rows, 11L -> 1L))

  private def taken(its: NodeWork): Seq[(Int, Long, Double)] =
    its.take().map(m => (m.int("partition"), m.long("rows"), m.double("task_s"))).sorted

  test("rows and time are reported once all tasks of the stage have ended") {
    val its = work()
    its.ended(Seq(task(1, rows = 8)))
    expect(taken(its), Nil)
    its.ended(Seq(task(0, rows = 5)))
    expect(taken(its), Seq((0, 5L, 0.5), (1, 8L, 0.5)))
    expect(taken(its), Nil)
  }

  test("under a union, a branch's partitions are numbered from 0") {
    val its = work()
    its.ended(Seq(task(7, rows = 2), task(6, rows = 1)))
    expect(taken(its), Seq((0, 1L, 0.5), (1, 2L, 0.5)))
  }

  test("tasks of other queries do not count") {
    val its = work()
    its.ended(Seq(EndedTask(1, 0, 500, Map(99L -> 5L)), EndedTask(1, 1, 500, Map(99L -> 5L))))
    expect(taken(its), Nil)
  }

  test("a task without rows counts by its other counter") {
    val its = work()
    its.ended(Seq(EndedTask(1, 0, 500, Map(11L -> 1L)), task(1, rows = 3)))
    expect(taken(its), Seq((0, 0L, 0.5), (1, 3L, 0.5)))
  }

  test("rows that the query does not track are not counted, and are no zero") {
    val its = new NodeWork
    its.planned(Map(11L -> PlanCounter(group, isRows = false)))
    its.ended(Seq(EndedTask(1, 0, 500, Map(11L -> 1L)), EndedTask(1, 1, 500, Map(11L -> 1L))))
    expect(its.take().map(_.bool("rows_not_counted")), Seq(true, true))
    val counted = work()
    counted.ended(Seq(task(0, rows = 1), task(1, rows = 0)))
    expect(counted.take().map(_.bool("rows_not_counted")), Seq(false, false))
  }

  test("a repeated task replaces the former one") {
    val its = work()
    its.ended(Seq(task(0, rows = 1), task(0, rows = 4), task(1, rows = 3)))
    expect(taken(its), Seq((0, 4L, 0.5), (1, 3L, 0.5)))
  }

  test("a batch that runs its stateful stage twice has the time of both, and another batch has its own") {
    val its = work()
    for (stage <- 1 to 2) its.ended(Seq(task(0, rows = 4, stage), task(1, rows = 3, stage)))
    its.ended(Seq(task(0, rows = 4, stage = 2)))
    expect(taken(its), Seq((0, 4L, 1.0), (1, 3L, 1.0)))
    val later = work()
    later.ended(Seq(task(0, rows = 4), task(1, rows = 3)))
    later.planned(Map(20L -> PlanCounter(group, isRows = true)))
    later.ended(Seq(EndedTask(2, 0, 500, Map(20L -> 5L)), EndedTask(2, 1, 500, Map(20L -> 6L))))
    expect(taken(later), Seq((0, 5L, 0.5), (1, 6L, 0.5)))
  }

  test("stages whose tasks never all end are forgotten") {
    val its = work()
    for (stage <- 1 to 40) its.ended(Seq(task(0, rows = 1, stage)))
    its.ended(Seq(task(1, rows = 2, stage = 1)))
    expect(taken(its), Nil)
    its.ended(Seq(task(1, rows = 2, stage = 40)))
    expect(taken(its).length, 2)
  }
}
