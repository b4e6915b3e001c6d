package rhino.spark

import rhino.spark.modify.records.{Canary, Failpoints, Figures, Ledger, Modification}

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
    val ledger = Ledger(Map(its(1), its(2), its(3)), Set(1, 2, 3), bindings, returned = Map(6L -> 6L))
    expect(numbers(ledger, 6), Seq(1L))
    expect(ledger.bound(6, _ => true), None)
    expect(ledger.ready, Seq(3L))
    expect(ledger.failing(6), None)
    expect(ledger.failing(5), Some(5L))
  }

  test("a canary is judged until enough batches have figures, and a failed batch of it gives its binding up") {
    val canary = Canary(2, Some(500), "p", Some(10), None)
    val tried = 1L -> its(1)._2.copy(canary = Some(canary))
    val ledger = Ledger(Map(tried, its(2, "g")), Set(1, 2), Map(5L -> Seq(1L), 6L -> Seq(2L)))
    expect(ledger.trials(6).map(_._1), Seq(5L))
    expect((ledger.failing(6), ledger.failing(7)), (Some(6L), Some(5L)))
    val begun = ledger.copy(judged = Map(5L -> Map(1L -> 1)))
    expect((begun.trials(7).map(_._1), begun.left(1, canary)), (Seq(5L), 1))
    val over = begun.copy(judged = begun.judged + (7L -> Map(1L -> 0)))
    expect((over.trials(8), over.failing(8)), (Nil, None))
    val returned = ledger.copy(returned = Map(5L -> 7L))
    expect((numbers(returned, 6), numbers(returned, 7)), (Seq(1L, 2L), Seq(2L)))
    expect((returned.trials(7), returned.failing(7)), (Nil, None))
  }

  test("figures that were written for another canary, before a rewind, do not count") {
    val canary = Canary(1, Some(500), "p", None, None)
    val tried = 2L -> its(2)._2.copy(canary = Some(canary))
    val ledger = Ledger(Map(tried), Set(2), Map(5L -> Seq(2L)), judged = Map(5L -> Map(1L -> 0), 6L -> Map(1L -> 0)))
    expect((ledger.trials(6).map(_._1), ledger.left(2, canary)), (Seq(5L), 1))
  }

  test("a binding replaces all older records of its slots, of void bindings as well") {
    val records = Map(its(1), its(2, "g"), its(3), its(4, removes = true))
    val ledger = Ledger(records, Set(1, 2, 3, 4), Map(5L -> Seq(1L, 2L), 8L -> Seq(3L)), returned = Map(8L -> 8L))
    expect(ledger.replaced(Seq(4)), Seq(1L, 3L))
    expect(Ledger(records, Set(1, 2)).replaced(Seq(1, 2)), Nil)
    fails[IllegalStateException]("modifications/records/1") { ledger.copy(records = records - 1).replaced(Seq(4)) }
  }

  test("a canary is not judged after a newer record has taken its place") {
    val tried = 1L -> its(1)._2.copy(canary = Some(Canary(9, None, "", None, None)))
    val ledger = Ledger(Map(tried, its(2, removes = true)), Set(1, 2), Map(5L -> Seq(1L), 7L -> Seq(2L)))
    expect((ledger.trials(6).size, ledger.trials(7).size), (1, 0))
  }

  test("a plain function fits one that PySpark calls with Arrow, and no other kind") {
    val plain = its(1)._2.copy(evalType = 100)
    expect(Seq(100, 101, 200, 250).map(plain.fits), Seq(true, true, false, false))
    expect(plain.copy(evalType = 200).fits(101), false)
  }

  test("limits of a canary") {
    val canary = Canary(2, Some(500), "p", Some(10), Some(20))
    def broken(ms: Long, rows: Long, timed: Boolean = true) = canary.broken(Figures(ms, timed, Map("p" -> rows)))
    expect(broken(500, 10), None)
    expect(broken(501, 10), Some("it took 501 ms, and 500 are allowed"))
    expect(broken(501, 20, timed = false), None)
    expect(broken(1, 9), Some("9 rows passed p, and 10 are the least"))
    expect(broken(1, 21), Some("21 rows passed p, and 20 are allowed"))
    expect((canary.tooLong(3), canary.tooLong(2).exists(_.contains("Give at most 1"))), (None, true))
  }

  test("failpoints of other processes are left alone, and an unknown action is refused") {
    val text = "handover.marker.before=error,modification.bind.before=stop"
    expect(Failpoints.parse(text), Map("modification.bind.before" -> "STOP"))
    fails[IllegalArgumentException]("must be name=stop") { Failpoints.parse("modification.bind.after=error") }
  }

  test("a bound record that is missing is an error that names its file") {
    fails[IllegalStateException]("modifications/records/4") { Ledger(bindings = Map(2L -> Seq(4L))).inForce(3) }
  }

  test("records are read, and unreadable ones are refused with their number") {
    val text = """{"kind": "filter", "target": "p", "removes": false, "code": "", "eval_type": 0, "returns": "",
      "filter": "k > 6", "columns": {"y": "y + 1"}, "author": "me", "created_ms": 1, "dry_run": true}"""
    val found = Modification.read(2, text)
    expect((found.slot, found.filter, found.columns), (("filter", "p"), "k > 6", Map("y" -> "y + 1")))
    expect((found.dryRun, found.canary, found.takes), (true, None, None))
    val tried = text.replace("\"dry_run\"", "\"canary\": {\"batches\": 3, \"max_batch_ms\": null, " +
      "\"point\": \"p\", \"min_rows\": 1, \"max_rows\": null}, \"takes\": [1, 2], \"dry_run\"")
    val its = Modification.read(2, tried)
    expect((its.canary, its.takes), (Some(Canary(3, None, "p", Some(1), None)), Some((1, 2))))
    val compared = text.replace(
      "\"dry_run\"", "\"sample\": {\"rows\": 9, \"code\": \"AQI=\"}, \"guard\": \"Aw==\", \"dry_run\"")
    expect(Modification.read(2, compared).sample.map(its => (its.rows, its.code.toSeq)), Some((9, Seq[Byte](1, 2))))
    expect(Modification.read(2, compared).guard.toSeq, Seq[Byte](3))
    expect(found.guard.isEmpty && found.sample.isEmpty && its.sample.isEmpty, true)
    val other = text.replace("filter\",", "sink\",")
    fails[IllegalArgumentException]("record 3", "kind 'sink'") { Modification.read(3, other) }
    fails[IllegalArgumentException]("record 4") { Modification.read(4, "{") }
  }
}
