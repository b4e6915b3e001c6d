package rhino.spark

import scala.collection.mutable
import scala.reflect.ClassTag
import scala.util.control.NonFatal

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

/** Tests of one idea. `test_scala.py` finds their names in the sources, so a name is a literal. */
abstract class Suite {
  private val tests = mutable.LinkedHashMap.empty[String, () => Unit]

  protected def test(name: String)(body: => Unit): Unit = {
    assert(!tests.contains(name), s"two tests have the name '$name'")
    tests.put(name, () => body)
  }

  protected def expect[T](actual: T, expected: T): Unit =
    if (actual != expected) throw new AssertionError(s"expected $expected, got $actual")

  /** Expects an error of class E whose message has all `parts`. */
  protected def fails[E <: Throwable](parts: String*)(body: => Any)(implicit tag: ClassTag[E]): Unit = {
    val error =
      try { body; None }
      catch { case error: Throwable => Some(error) }
    error match {
      case Some(found: E) => parts.foreach { part =>
          if (!found.getMessage.contains(part)) throw new AssertionError(s"'$part' is not in: ${found.getMessage}")
        }
      case other => throw new AssertionError(s"expected ${tag.runtimeClass.getName}, got $other")
    }
  }

  /** Runs all tests. Returns their names, each with the text of its failure, if any. */
  def results(): Seq[(String, Option[String])] = tests.toSeq.map { case (name, body) =>
    name -> (try { body(); None } catch {
      case error: AssertionError => Some(Suite.text(error))
      case NonFatal(error) => Some(Suite.text(error))
    })
  }
}

object Suite {
  private def text(error: Throwable): String =
    (error.toString +: error.getStackTrace.take(12).map("  at " + _)).mkString("\n")

  private def all: Seq[Suite] = Seq(
    new StoreSuite, new FilesSuite, new SettingsSuite, new IntegrationModeSuite, new SchemaSuite, new LocationsSuite,
    new ExecutorListenerSuite, new SilentExecutorsSuite, new PartsSuite, new DivisionSuite, new SourceLagSuite,
    new LedgerSuite, new FactFilesSuite, new PlanCheckSuite, new TaskGroupSuite, new NodeWorkSuite, new IdleCheckSuite,
    new FollowerSuite, new TlsSuite, new RestartSuite, new StaticTableSuite, new MisplacedSuite, new ModificationSuite,
    new JarSuite, new KeyCheckSuite, new PointNodesSuite, new PointFitSuite,
    new ManagerStreamSuite, new AttachmentSuite, new RightsSuite, new PausesSuite)

  /** Prints a JSON object for each test, and at last one of what Python compares with its own. */
  def main(arguments: Array[String]): Unit = {
    for (suite <- all; (name, failure) <- suite.results())
      println(compact(render(("suite" -> suite.getClass.getSimpleName) ~ ("test" -> name) ~ ("failure" -> failure))))
    println(compact(render(
      ("required" -> settings.RequiredConf.ofState.toMap) ~ ("exclusion" -> settings.RequiredConf.ofExclusion.toMap))))
  }
}
