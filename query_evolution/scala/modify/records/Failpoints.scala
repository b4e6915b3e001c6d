package rhino.spark.modify.records

import java.nio.file.{Files, Paths}

/**
 * Points at which a test stops or kills the driver. The environment variable RHINO_FAILPOINTS arms them, as in
 * rhino_core/failpoints.py, which declares the names. Here the actions are `stop` and `kill`, at every hit.
 */
private[spark] object Failpoints {
  private val Variable = "RHINO_FAILPOINTS"
  private val signals = Map("stop" -> "STOP", "kill" -> "KILL")

  /** Signals by name. Entries of other processes' points are left alone. */
  private lazy val armed: Map[String, String] = parse(sys.env.getOrElse(Variable, ""))

  /** Throws IllegalArgumentException for an action that is not known. */
  def parse(text: String): Map[String, String] =
    text.split(",").filter(_.startsWith("modification.")).map { entry =>
      val (name, action) = entry.span(_ != '=')
      name -> signals.getOrElse(
        action.drop(1), throw new IllegalArgumentException(s"$Variable: '$entry': must be name=stop or name=kill"))
    }.toMap

  def around[T](step: String)(act: => T): T = {
    hit(s"modification.$step.before")
    val made = act
    hit(s"modification.$step.after")
    made
  }

  /**
   * The kernel gives the signal to the thread that is named first. That is this one, which waits for the sender, so it
   * does not go on before the process is stopped. A signal to the process would be the first thread's, which may get no
   * time for a while.
   */
  private def hit(name: String): Unit = armed.get(name).foreach { signal =>
    System.err.println(s"failpoint $name")
    val thread = Files.readSymbolicLink(Paths.get("/proc/thread-self")).getFileName
    new ProcessBuilder("sh", "-c", s"kill -$signal $thread").inheritIO().start().waitFor()
  }
}
