package rhino.spark

import rhino.spark.driver.Division

class DivisionSuite extends Suite {
  private val nodes = (0 until 100).map(partition => s"job/0/$partition")
  private def fresh(executors: String*) = Division.of(nodes, executors, _ => None)
  private def after(former: Map[String, String], executors: String*) = Division.of(nodes, executors, former.get)
  private def loads(divided: Map[String, String]): Map[String, Int] =
    divided.groupBy(_._2).map { case (executor, its) => executor -> its.size }
  private def moved(before: Map[String, String], now: Map[String, String]): Set[String] =
    nodes.filter(node => before(node) != now(node)).toSet

  test("executors get equal shares, and every node one executor") {
    expect(fresh("1").keySet, nodes.toSet)
    expect(loads(fresh("1")), Map("1" -> 100))
    expect(loads(fresh("1", "2", "3", "4")), Map("1" -> 25, "2" -> 25, "3" -> 25, "4" -> 25))
    expect(loads(fresh("1", "2", "3")).values.max, 34)
    expect(Division.of(Seq("job/0/0"), Seq("1", "2", "3"), _ => None).size, 1)
  }

  test("the same nodes and executors are divided alike, in whatever order the executors come") {
    expect(fresh("3", "1", "2"), fresh("1", "2", "3"))
  }

  test("the loss of an executor moves only its own nodes") {
    val before = fresh("1", "2", "3", "4", "5")
    for (lost <- Seq("1", "3", "5")) {
      val now = after(before, Seq("1", "2", "3", "4", "5").filter(_ != lost): _*)
      expect(moved(before, now), nodes.filter(before(_) == lost).toSet)
      expect(loads(now).values.toSet, Set(25))
    }
  }

  test("a new executor takes its share, and no node moves between the others") {
    val before = fresh("1", "2")
    val now = after(before, "1", "2", "3")
    expect(moved(before, now), nodes.filter(now(_) == "3").toSet)
    expect(loads(now), Map("1" -> 34, "2" -> 34, "3" -> 32))
  }

  test("without a former division most nodes are where their hash is the highest") {
    val kept = fresh("1", "2", "3").count { case (node, executor) => fresh("1", "2", "3", "4")(node) == executor }
    assert(kept > 60, s"$kept of 100 stay with their executor")
  }
}
