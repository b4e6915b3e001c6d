package rhino.spark

import org.apache.spark.sql.execution.UnionExec

import rhino.spark.Plans.{exchange, scan, stateful}
import rhino.spark.driver.TaskGroup

class TaskGroupSuite extends Suite {

  test("a plan without stateful operators has no task groups") {
    expect(TaskGroup.of(exchange(scan)), Nil)
  }

  test("operators of one stage share their tasks, and the group has the name of the first") {
    val groups = TaskGroup.of(stateful(1, stateful(0, exchange(scan))))
    expect(groups, Seq(TaskGroup(Seq(0, 1), 2)))
    expect(groups.head.name, 0)
  }

  test("an exchange separates task groups") {
    expect(TaskGroup.of(stateful(1, exchange(stateful(0, exchange(scan))))),
      Seq(TaskGroup(Seq(0), 2), TaskGroup(Seq(1), 2)))
  }

  test("branches of a union have their own tasks") {
    val union = UnionExec(Seq(stateful(0, exchange(scan), partitions = 3), stateful(1, exchange(scan), partitions = 5)))
    expect(TaskGroup.of(union), Seq(TaskGroup(Seq(0), 3), TaskGroup(Seq(1), 5)))
  }
}
