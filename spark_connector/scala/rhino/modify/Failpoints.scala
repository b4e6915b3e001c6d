package rhino.spark.modify

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

  /** The signal stops all threads before the one that waits for its sender goes on. */
  private def hit(name: String): Unit = armed.get(name).foreach { signal =>
    System.err.println(s"failpoint $name")
    val pid = ProcessHandle.current().pid()
    new ProcessBuilder("sh", "-c", s"kill -$signal $pid").inheritIO().start().waitFor()
  }
}
