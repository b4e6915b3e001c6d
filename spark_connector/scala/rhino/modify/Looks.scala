package rhino.spark.modify

/**
 * Decides when a folder is listed that is looked at often. It is listed when its time of change is new, and while the
 * last change is so recent that another one may have the same time. It is also listed regularly, because some file
 * systems have times that cannot be relied on.
 *
 * @param changedMs when the folder was changed, 0 if there is none
 * @param nowMs     the clock that gives these times
 */
private[spark] class Looks(changedMs: () => Long, nowMs: () => Long) {
  private val SettledMs = 100L
  private val RepeatMs = 1000L
  private var seen = Option.empty[Long]
  private var looked = 0L

  /** `look` returns whether it has dealt with all that it has found. Otherwise the next call looks again. */
  def ifDue(look: => Boolean): Unit = {
    val (changed, now) = (changedMs(), nowMs())
    val due = !seen.contains(changed) || now - changed < SettledMs || now - looked >= RepeatMs
    if (changed != 0 && due) {
      seen = None // also if `look` throws
      if (look) {
        seen = Some(changed)
        looked = now
      }
    }
  }
}
