package rhino.spark

import rhino.spark.modify.Misplaced
import rhino.spark.modify.records.Modification

/** Modifications without a place. */
class MisplacedSuite extends Suite {
  private val first = filter(1)
  private val second = filter(2)

  private def filter(number: Long): (Modification, String) =
    Modification(number, Modification.Filter, "scored", removes = false, dryRun = false) -> "no place"

  test("a modification is told when no plan of a batch has had its place, once") {
    val misplaced = new Misplaced
    expect(misplaced.see(4, Seq(first)), Nil)
    expect(misplaced.see(4, Seq(first)), Nil)
    expect(misplaced.see(5, Seq(first)), Seq(first))
    expect(misplaced.see(6, Seq(first)), Nil)
  }

  test("a place that some plan of the batch has is not missing") {
    val misplaced = new Misplaced
    misplaced.see(4, Seq(first, second)) // the plan of a file source
    misplaced.see(4, Seq(second))
    expect(misplaced.see(5, Seq(first, second)), Seq(second))
    misplaced.see(5, Nil)
    expect(misplaced.see(6, Nil), Nil)
  }
}
