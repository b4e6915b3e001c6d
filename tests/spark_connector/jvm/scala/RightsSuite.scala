package rhino.spark

import java.io.IOException
import java.nio.file.Path
import java.util.UUID
import java.util.concurrent.{CountDownLatch, LinkedBlockingQueue, TimeUnit}

import rhino.spark.restart.{Apart, Rights}

class RightsSuite extends Suite {
  private val (a, b) = (Path.of("/ckpt/a"), Path.of("/ckpt/b"))

  /** Acts again and again, as the look does, until `found` is there. */
  private def until[T](found: => Option[T])(act: => Unit): T = {
    val deadline = System.nanoTime() + 30000000000L
    var its = found
    while (its.isEmpty) {
      assert(System.nanoTime() < deadline, "not within 30 s")
      act
      Thread.`yield`()
      its = found
    }
    its.get
  }

  test("an act that hangs stops none for other files, and does not begin again") {
    val (ended, hangs) = (new LinkedBlockingQueue[Path], new CountDownLatch(1))
    val apart = new Apart("test")
    apart(a) { hangs.await(); ended.add(a) }
    apart(a)(ended.add(Path.of("again")))
    apart(b)(ended.add(b))
    expect(ended.poll(30, TimeUnit.SECONDS), b)
    hangs.countDown()
    expect(ended.poll(30, TimeUnit.SECONDS), a)
    until(Option(ended.poll()))(apart(a)(ended.add(b)))
  }

  test("a right that could not be let go is tried again, and others are let go meanwhile") {
    val (let, runs) = (new LinkedBlockingQueue[Path], Seq.fill(2)(UUID.randomUUID))
    @volatile var failing = true
    val rights = new Rights(its => { if (its == a && failing) throw new IOException("stale"); let.add(its) })
    runs.zip(Seq(a, b)).foreach { case (run, checkpoint) => rights.add(run, checkpoint) }
    rights.retain(runs.toSet)
    expect(until(Option(let.poll()))(rights.retain(Set.empty)), b)
    failing = false
    expect(until(Option(let.poll()))(rights.retain(Set.empty)), a)
  }

  test("a right is let go only after the last claim of its run") {
    val (done, hangs, run) = (new LinkedBlockingQueue[String], new CountDownLatch(1), UUID.randomUUID)
    val rights = new Rights(_ => done.add("let go"))
    rights.add(run, a)
    rights.claim(run) { hangs.await(); done.add("taken") }
    rights.retain(Set.empty)
    hangs.countDown()
    expect(Seq.fill(2)(until(Option(done.poll()))(rights.retain(Set.empty))), Seq("taken", "let go"))
  }

  test("a right stays when the next run of its query has begun") {
    val (done, runs) = (new LinkedBlockingQueue[Path], Seq.fill(2)(UUID.randomUUID))
    val rights = new Rights(done.add(_))
    runs.foreach(rights.add(_, a))
    rights.add(UUID.randomUUID, b)
    expect(until(Option(done.poll()))(rights.retain(Set(runs.last))), b)
    expect(until(Option(done.poll()))(rights.retain(Set.empty)), a)
    expect(done.poll(), null)
  }

  test("the trouble of one run is told once, and again when it is another one") {
    val (rights, run) = (new Rights(_ => ()), UUID.randomUUID)
    def told(text: String): Boolean = rights.newTrouble(run, () => throw new IOException(text)).isDefined
    expect(Seq(told("stale"), told("stale"), told("denied"), told("denied")), Seq(true, false, true, false))
    expect(rights.newTrouble(run, () => ()), None)
    expect(told("denied"), true)
  }
}
