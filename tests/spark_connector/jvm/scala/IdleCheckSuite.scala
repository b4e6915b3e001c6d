package rhino.spark

import rhino.spark.driver.IdleCheck

class IdleCheckSuite extends Suite {
  private val map = Some((1L, 7L))

  private class Checked {
    private var nowMs = 0L
    var asked = 0
    val check = new IdleCheck(() => nowMs * 1000000L)
    def pass(ms: Long): Unit = nowMs += ms
    def look(newest: Option[(Long, Long)] = map, idle: Boolean = true): Option[Long] =
      check.check(newest) { asked += 1; idle }
  }

  test("a busy query is not looked at") {
    val its = new Checked
    expect(its.look(), None)
    its.pass(9000)
    its.check.batchLogged()
    its.pass(9000)
    expect(its.look(), None)
    expect(its.asked, 0)
  }

  test("a query without batches is reported once") {
    val its = new Checked
    its.pass(10000)
    expect(its.look(), Some(7L))
    its.pass(60000)
    expect(its.look(), None)
    expect(its.asked, 1)
  }

  test("without a map of locations nothing is reported") {
    val its = new Checked
    its.pass(10000)
    expect(its.look(newest = None), None)
    expect(its.asked, 0)
  }

  test("checks that find no idleness come at growing intervals") {
    val its = new Checked
    its.pass(10000)
    for (_ <- 1 to 600) { its.look(idle = false); its.pass(100) }
    expect(its.asked, 7) // after 0, 1, 3, 7, 15, 31 and 47 s; the next is due after 63 s
  }

  test("a new map is checked and reported at once") {
    val its = new Checked
    its.pass(10000)
    its.look()
    expect(its.look(Some((1L, 8L))), Some(8L))
    expect(its.look(Some((2L, 8L))), Some(8L))
  }

  test("a report that the manager may have lost is repeated") {
    val its = new Checked
    its.pass(10000)
    its.look()
    its.check.reset()
    expect(its.look(), Some(7L))
  }
}
