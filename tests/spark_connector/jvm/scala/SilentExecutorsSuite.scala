package rhino.spark

import scala.collection.mutable

import rhino.spark.driver.{SilentExecutors, Standing}

class SilentExecutorsSuite extends Suite {
  private class Scene(count: Int) {
    private var nowMs = 0L
    val executors = new SilentExecutors(3000, () => nowMs)
    val standing = mutable.Map.empty[String, Standing].withDefaultValue(Standing.Usual)
    (1 to count).map(_.toString).foreach(executors.added)

    /** Seconds pass, in which these executors send heartbeats. Returns the executors that are dropped meanwhile. */
    def pass(seconds: Int, heard: String*): Seq[String] = (1 to seconds * 2).flatMap { _ =>
      nowMs += 500
      heard.foreach(executors.heardOf)
      executors.gone(standing).map(_.id)
    }

    /** The driver's process stands still. */
    def pause(seconds: Int): Seq[String] = { nowMs += seconds * 1000L; executors.gone(standing).map(_.id) }
  }

  test("an executor is dropped when it is silent and its worker is lost") {
    val its = new Scene(3)
    its.standing("3") = Standing.Lost
    expect(its.pass(60, "1", "2", "3"), Nil)
    expect(its.pass(2, "1", "2"), Nil)
    expect(its.pass(1, "1", "2"), Seq("3"))
    its.executors.removed("3")
    expect(its.pass(60, "1", "2"), Nil)
  }

  test("as long as its worker lives, an executor may be silent") {
    val its = new Scene(3)
    expect(its.pass(1000, "1", "2"), Nil)
    its.standing("3") = Standing.Lost
    expect(its.pass(1, "1", "2"), Seq("3"))
  }

  test("without a manager it takes longer") {
    val its = new Scene(3)
    its.standing("3") = Standing.Unknown
    expect(its.pass(29, "1", "2"), Nil)
    expect(its.pass(1, "1", "2"), Seq("3"))
  }

  test("none is dropped while most are silent, and a half is not most") {
    val its = new Scene(4)
    (1 to 4).foreach(id => its.standing(id.toString) = Standing.Lost)
    expect(its.pass(60, "1"), Nil)
    expect(its.pass(1, "1", "2"), Seq("3", "4"))
    expect(new Scene(1).pass(60), Nil)
  }

  test("one that Spark does not let go is dropped again") {
    val its = new Scene(2)
    its.standing("2") = Standing.Lost
    expect(its.pass(7, "1"), Seq("2", "2"))
  }

  test("after a pause of the driver, silence begins anew") {
    val its = new Scene(3)
    its.standing("3") = Standing.Lost
    expect(its.pass(2, "1", "2"), Nil)
    expect(its.pause(10), Nil)
    expect(its.pass(2, "1", "2"), Nil)
    expect(its.pass(1, "1", "2"), Seq("3"))
  }

  test("executors that are gone do not count") {
    val its = new Scene(3)
    its.executors.removed("2")
    its.executors.heardOf("2")
    its.standing("3") = Standing.Lost
    expect(its.pass(4, "1"), Seq("3"))
  }
}
