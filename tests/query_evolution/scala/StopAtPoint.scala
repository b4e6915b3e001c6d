package rhino.spark.modify

import rhino.spark.modify.records.Failpoints

/** A process that comes to a failpoint when a line arrives on its standard input, and then works without a pause. */
object StopAtPoint {
  private val WarmUp = 30 // the code that starts processes is fast then, as in a driver

  def main(arguments: Array[String]): Unit = {
    for (_ <- 1 to WarmUp) new ProcessBuilder("sh", "-c", "kill -CONT $$").inheritIO().start().waitFor()
    Failpoints.around("judge")(())
    println("ready")
    System.in.read()
    Failpoints.around("plan") {
      println("went on")
      while (true) Thread.onSpinWait()
    }
  }
}
