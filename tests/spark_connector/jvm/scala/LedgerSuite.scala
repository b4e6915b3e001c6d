package rhino.spark

import rhino.spark.modify.{Ledger, Modification}

/** Which modifications a batch is planned with. */
class LedgerSuite extends Suite {
  private def its(number: Long, target: String = "f", removes: Boolean = false, dryRun: Boolean = false) =
    number -> Modification(number, Modification.Function, target, removes, dryRun)

  private def numbers(ledger: Ledger, batch: Long): Seq[Long] = ledger.inForce(batch).map(_.number)

  test("accepted records wait for a batch, but not dry runs") {
    val ledger = Ledger(Map(its(1), its(2, dryRun = true), its(3)), accepted = Set(1, 2))
    expect(ledger.ready, Seq(1L))
    expect(numbers(ledger, 9), Nil)
  }

  test("a batch binds what is ready, and is never bound again") {
    val (next, bound) = Ledger(Map(its(1), its(2)), accepted = Set(1, 2)).bound(5, _ == 1).get
    expect(bound, Seq(1L))
    expect(next.ready, Seq(2L))
    expect(next.bound(5, _ => true), None)
    expect(next.bound(6, _ => true).get._2, Seq(2L))
  }

  test("the newest record of a slot counts, from its batch on") {
    val ledger = Ledger(Map(its(1), its(2, "g"), its(3)), Set(1, 2, 3), Map(5L -> Seq(1L, 2L), 8L -> Seq(3L)))
    expect(numbers(ledger, 4), Nil)
    expect(numbers(ledger, 7), Seq(1L, 2L))
    expect(numbers(ledger, 8), Seq(2L, 3L))
  }

  test("a record that removes leaves its slot empty") {
    val ledger = Ledger(Map(its(1), its(2, removes = true)), Set(1, 2), Map(5L -> Seq(1L), 6L -> Seq(2L)))
    expect(numbers(ledger, 5), Seq(1L))
    expect(numbers(ledger, 6), Nil)
  }

  test("a failed batch is planned with the former version, and binds nothing else") {
    val bindings = Map(5L -> Seq(1L), 6L -> Seq(2L))
    val ledger = Ledger(Map(its(1), its(2), its(3)), Set(1, 2, 3), bindings, returned = Set(6L))
    expect(numbers(ledger, 6), Seq(1L))
    expect(ledger.bound(6, _ => true), None)
    expect(ledger.ready, Seq(3L))
    expect(ledger.failing(6), None)
    expect(ledger.failing(5), Some(5L))
  }

  test("a bound record that is missing is an error that names its file") {
    fails[IllegalStateException]("modifications/records/4") { Ledger(bindings = Map(2L -> Seq(4L))).inForce(3) }
  }

  test("records are read, and unreadable ones are refused with their number") {
    val text = """{"kind": "filter", "target": "p", "removes": false, "code": "", "eval_type": 0, "returns": "",
      "filter": "k > 6", "columns": {"y": "y + 1"}, "author": "me", "created_ms": 1, "dry_run": true}"""
    val found = Modification.read(2, text)
    expect((found.slot, found.filter, found.columns), (("filter", "p"), "k > 6", Map("y" -> "y + 1")))
    expect(found.dryRun, true)
    val other = text.replace("filter\",", "sink\",")
    fails[IllegalArgumentException]("record 3", "kind 'sink'") { Modification.read(3, other) }
    fails[IllegalArgumentException]("record 4") { Modification.read(4, "{") }
  }
}
