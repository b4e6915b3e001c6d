package rhino.spark

import rhino.spark.driver.SilentExecutors

class SilentExecutorsSuite extends Suite {
  private class Scene(count: Int) {
    private var nowMs = 0L
    val executors = new SilentExecutors(8000, () => nowMs)
    private val ids = (1 to count).map(_.toString)
    ids.foreach(executors.added)

    /** Seconds pass, in which these executors send heartbeats. */
    def pass(seconds: Int, heard: String*): Seq[String] = {
      nowMs += seconds * 1000L
      heard.foreach(executors.heardOf)
      executors.spared().sorted
    }
  }

  test("an executor that is silent alone is dropped, as is a half of them") {
    val its = new Scene(4)
    expect(its.pass(10, "1", "2", "3"), Nil)
    expect(its.pass(3, "1", "2", "3"), Nil)
    expect(its.pass(5, "1", "2"), Nil)
  }

  test("when most are silent, none is dropped, until others are heard again") {
    val its = new Scene(4)
    expect(its.pass(3, "1"), Nil)
    expect(its.pass(2, "1"), Seq("2", "3", "4"))
    expect(its.pass(20, "1"), Seq("2", "3", "4"))
    expect(its.pass(1, "1", "2", "3"), Nil)
  }

  test("the only executor is most of them") {
    expect(new Scene(1).pass(5), Seq("1"))
  }

  test("Spark's usual time-out is the limit") {
    val its = new Scene(3)
    expect(its.pass(119), Seq("1", "2", "3"))
    expect(its.pass(2), Nil)
  }

  test("executors that are gone do not count") {
    val its = new Scene(3)
    its.executors.removed("2")
    its.executors.removed("3")
    its.executors.heardOf("3")
    expect(its.pass(5, "1"), Nil)
    expect(its.pass(5), Seq("1"))
  }
}
