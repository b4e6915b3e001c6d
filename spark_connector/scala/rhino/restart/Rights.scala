package rhino.spark.restart

import java.nio.file.Path
import java.util.UUID

import scala.collection.concurrent.TrieMap
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/**
 * The rights of this driver's runs that are not supervised. Of each checkpoint, one act goes on at a time.
 *
 * @param letGo lets go of the right to run the query of a checkpoint
 */
private[spark] class Rights(letGo: Path => Unit) extends Logging {
  private val checkpoints = TrieMap.empty[UUID, Path] // by run, of those that this machine sees as folders
  private val troubles = TrieMap.empty[UUID, String] // by run, why the last act has failed
  private val apart = new Apart("rhino-right")

  def add(run: UUID, checkpoint: Path): Unit = checkpoints.put(run, checkpoint)

  def claim(run: UUID)(take: => Unit): Unit = checkpoints.get(run).foreach { checkpoint =>
    apart(checkpoint)(newTrouble(run, () => take).foreach {
      logWarning(s"the right to run the query of $checkpoint cannot be taken; trying again", _)
    })
  }

  /** Lets go of the rights of all other runs. A right that stays is tried again at the next call. */
  def retain(runs: Set[UUID]): Unit = {
    for ((run, checkpoint) <- checkpoints if !runs(run))
      apart(checkpoint)(newTrouble(run, () => end(run, checkpoint)).foreach {
        logWarning(s"the right to run the query of $checkpoint cannot be let go; trying again", _)
      })
    troubles --= troubles.keySet.filterNot(run => runs(run) || checkpoints.contains(run))
  }

  /** The next run of the query may have begun, and the act before may have ended this one. */
  private def end(run: UUID, checkpoint: Path): Unit = if (checkpoints.contains(run)) {
    if (!checkpoints.exists { case (other, its) => other != run && its == checkpoint }) letGo(checkpoint)
    checkpoints.remove(run)
  }

  /** Acts for one run, so its error stops no other one. Returns an error that is not that of the time before. */
  def newTrouble(run: UUID, act: () => Unit): Option[Throwable] =
    try { act(); troubles.remove(run); None }
    catch { case NonFatal(error) => Some(error).filterNot(its => troubles.put(run, s"$its").contains(s"$its")) }
}
