package rhino.spark

import rhino.spark.Plans.{exchange, scan, stateful}
import rhino.spark.settings.ClassNames
import rhino.spark.wire.Schema.{Fields, Message}

class FollowerSuite extends Suite {
  private val plan = stateful(0, exchange(scan))

  private val kinds = Seq("query_started", "batch_logged", "query_ended", "query_idle")
  private def kindsOf(events: Seq[Message]): Seq[String] = events.map(event => kinds.find(event.has).get)
  private def ids(versions: Seq[Message]): Seq[String] = versions.map { version =>
    s"${version.sub("version").long("version")}_${version.sub("version").string("checkpoint_id")}"
  }

  test("a query starts when Spark has planned its first batch") {
    val run = new FakeRun("q")
    val its = new Followed(run)
    expect(its.look(), Nil)
    run.planning(plan, batch = 0)
    val events = its.look()
    expect(kindsOf(events), Seq("query_started"))
    val started = events.head.sub("query_started")
    expect((started.string("job"), started.string("name"), started.bool("unplanned")), ("q", "name of q", false))
    expect(started.subs("task_groups").map(_.int("partitions")), Seq(2))
    expect(its.look(), Nil)
    run.isTemporary = true // Spark deletes the checkpoint after the run
    expect(Seq(started, new Followed(run).look().head.sub("query_started")).map(_.bool("temporary")), Seq(false, true))
  }

  test("logged batches are reported in order, each with its versions and the floors below which nothing is needed") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    run.logging(0)
    run.logging(1)
    run.logging(2)
    val reports = its.look().map(_.sub("batch_logged"))
    expect(reports.map(_.long("batch_id")), Seq(0L, 1L, 2L))
    expect(reports.map(_.long("input_rows")), Seq(100L, 101L, 102L))
    expect(reports.map(_.double("batch_s")), Seq(0.5, 1.5, 2.5))
    expect(reports.map(_.double("trigger_s")), Seq(5.0, 5.0, 5.0))
    expect(reports.flatMap(_.subs("lags")).map(_.double("behind")), Seq(7.0, 8.0, 9.0))
    expect(ids(reports.head.subs("versions")), Seq("1_a0", "1_b0"))
    expect(reports.map(report => ids(report.subs("floors").map(_.sub("version")))), Seq(Nil, Nil, Seq("1_a0", "1_b0")))
    expect(its.look(), Nil)
  }

  test("a batch that Spark has logged is reported when Spark keeps no progress of queries") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    run.keepsProgress = false // spark.sql.streaming.numRecentProgressUpdates=1
    val its = new Followed(run).wanting("q")
    its.look()
    for (batch <- 0 to 2) run.logging(batch)
    val reports = (its.look() ++ its.lookLater()).filter(_.has("batch_logged")).map(_.sub("batch_logged"))
    expect(reports.map(_.long("batch_id")), Seq(0L, 1L, 2L))
    expect(ids(reports.last.subs("floors").map(_.sub("version"))), Seq("1_a0", "1_b0"))
    expect(kindsOf(its.lookLater()), Seq("query_idle"))
  }

  test("a logged batch waits a moment for its figures, unless the next one is planned or the query ends") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    run.keepsProgress = false
    val its = new Followed(run)
    its.look()
    run.logging(0)
    expect(its.look(), Nil)
    run.planning(plan, batch = 1)
    expect(its.look().map(_.sub("batch_logged").long("batch_id")), Seq(0L))
    run.logging(1)
    expect(its.look(), Nil)
    its.runs = Nil
    expect(kindsOf(its.look()), Seq("batch_logged", "query_ended"))
  }

  test("floors come from the oldest entry that Spark has kept of those that a restart may need") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    for (batch <- 0 to 3) run.logging(batch)
    its.look()
    run.logging(4)
    run.committed -= 2 // Spark deletes it when it prepares batch 5
    val reports = its.look().map(_.sub("batch_logged"))
    expect(reports.map(report => ids(report.subs("floors").map(_.sub("version")))), Seq(Seq("4_a3", "4_b3")))
  }

  test("a restarted query does not report the batches of its former run") {
    val run = new FakeRun("q").planning(plan, batch = 5)
    for (batch <- 0 to 5) run.logging(batch)
    run.computedBatches = Seq(5)
    val reports = new Followed(run).look().filter(_.has("batch_logged")).map(_.sub("batch_logged").long("batch_id"))
    expect(reports, Seq(5L))
  }

  test("a batch without an entry in the commit log is not reported") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    expect(its.look(), Nil)
    run.progressing(0)
    expect(its.look(), Nil)
    run.logging(0)
    expect(kindsOf(its.look()), Seq("batch_logged"))
  }

  test("an ended query reports its last batch, and its error") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    run.logging(0)
    run.error = "too bad"
    its.runs = Nil
    val events = its.look()
    expect(kindsOf(events), Seq("batch_logged", "query_ended"))
    expect(events.last.sub("query_ended").string("error"), "too bad")
  }

  test("the former run of a query ends before the next one starts") {
    val its = new Followed(new FakeRun("q").planning(plan, batch = 0))
    its.look()
    its.runs = Seq(new FakeRun("q").planning(plan, batch = 1))
    expect(kindsOf(its.look()), Seq("query_ended", "query_started"))
  }

  test("a restarted query without new data is introduced by the state of its former run") {
    val run = new FakeRun("q")
    run.hadState = true
    val its = new Followed(run)
    run.progressing(3)
    val events = its.look()
    expect(events.head.sub("query_started").bool("unplanned"), true)
    run.planning(plan, batch = 3)
    expect(its.look().head.sub("query_started").bool("unplanned"), false)
  }

  test("a restarted query with data is introduced before Spark plans its first batch") {
    val run = new FakeRun("q")
    run.hadState = true
    val its = new Followed(run)
    expect(its.look().map(_.sub("query_started").bool("unplanned")), Seq(true))
    expect(its.look(), Nil)
    run.planning(plan, batch = 4)
    expect(its.look().map(_.sub("query_started").bool("unplanned")), Seq(false))
    its.runs = Nil
    expect(kindsOf(its.look()), Seq("query_ended"))
  }

  test("a query that ends by itself is not introduced before its first plan") {
    val run = new FakeRun("q")
    run.hadState = true
    run.endsItself = true
    run.progressing(3)
    expect(new Followed(run).look(), Nil)
  }

  test("queries without state, or without Rhino, are left alone") {
    val stateless = new FakeRun("stateless").planning(exchange(scan), batch = 0).logging(0)
    expect(new Followed(stateless).look(), Nil)
    expect(stateless.cancelled, Nil)
  }

  test("a query that Rhino must not serve is cancelled with the reason") {
    val foreign = new FakeRun("q", ClassNames.SparkProvider).planning(plan, batch = 0)
    val its = new Followed(foreign)
    expect(its.look(), Nil)
    expect(foreign.cancelled.exists(_.contains("rhino adopt")), true)
  }

  test("a run that the manager refuses is cancelled and not introduced again") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    its.follower.refuse(run.runId, "another driver runs it")
    its.look()
    expect(run.cancelled, Seq("another driver runs it"))
    expect(its.follower.introductions(), Nil)
  }

  test("a new manager hears of running queries and the newest batch again") {
    val run = new FakeRun("q").planning(plan, batch = 0)
    val its = new Followed(run)
    its.look()
    run.logging(0)
    its.look()
    val introduced = its.follower.introductions()
    expect(kindsOf(introduced), Seq("query_started", "batch_logged"))
    expect(introduced.last.sub("batch_logged").bool("repeated"), true)
  }

  test("an idle query is reported once, with the map that its next batch will use") {
    val run = new FakeRun("q").planning(plan, batch = 0).logging(0)
    val its = new Followed(run).wanting("q")
    expect(kindsOf(its.look()), Seq("query_started", "batch_logged"))
    val events = its.lookLater()
    expect(kindsOf(events), Seq("query_idle"))
    expect(events.head.sub("query_idle").long("configuration_epoch"), 7L)
    expect(its.lookLater(), Nil)
  }

  test("a query is not idle while a batch runs, even a long one") {
    val run = new FakeRun("q").planning(plan, batch = 0).logging(0)
    val its = new Followed(run).wanting("q")
    its.look()
    run.newestOffsets = Some(1)
    expect(its.lookLater(), Nil)
  }

  test("a query is not idle before its newest batch was reported") {
    val run = new FakeRun("q").planning(plan, batch = 0).logging(0)
    val its = new Followed(run).wanting("q")
    its.look()
    run.keepsProgress = false // it comes some time after the commit
    run.logging(1)
    expect(its.lookLater(), Nil)
  }

  test("no query in real-time mode is idle, nor one whose desired host has no executor") {
    val realTime = new FakeRun("r").planning(plan, batch = 0).logging(0)
    realTime.isRealTime = true
    val its = new Followed(realTime).wanting("r")
    its.look()
    expect(its.lookLater(), Nil)
    val elsewhere = new Followed(new FakeRun("q").planning(plan, batch = 0).logging(0))
    elsewhere.look()
    expect(elsewhere.lookLater(), Nil)
  }

  test("a query that waits for its first data is idle") {
    val run = new FakeRun("q").logging(3)
    run.hadState = true
    val its = new Followed(run).wanting("q")
    expect(kindsOf(its.look()), Seq("query_started"))
    expect(kindsOf(its.lookLater()), Seq("query_idle"))
  }

  test("a query with an unreadable checkpoint stops no other") {
    val (bad, good) = (new FakeRun("bad").planning(plan, batch = 0), new FakeRun("good").planning(plan, batch = 0))
    val its = new Followed(bad, good)
    its.look()
    bad.unreadable = true
    bad.logging(0)
    good.logging(0)
    expect(its.look().map(_.sub("batch_logged").string("job")), Seq("good"))
    its.runs = Seq(good)
    expect(kindsOf(its.look()), Seq("query_ended"))
  }

  test("the files of a checkpoint are read for an archive, or the reason is sent") {
    val run = new FakeRun("q").planning(plan, batch = 0).logging(0)
    val its = new Followed(run)
    its.look()
    val read = its.follower.checkpoint("q", 0).sub("checkpoint")
    expect((read.string("job"), read.long("batch_id"), read.string("error")), ("q", 0L, ""))
    expect(read.subs("files").map(_.string("path")), Seq("offsets/0"))
    run.unreadable = true
    expect(its.follower.checkpoint("q", 0).sub("checkpoint").string("error").contains("unreadable"), true)
    expect(its.follower.checkpoint("other", 0).sub("checkpoint").string("error").contains("has ended"), true)
  }

  test("at its end a query sends the files of its last batch, if the manager wants them") {
    def endOf(archived: Boolean): Seq[Message] = {
      val run = new FakeRun("q").planning(plan, batch = 0)
      val its = new Followed(run)
      its.look()
      run.logging(0)
      its.follower.archived = archived
      its.look()
      its.runs = Nil
      its.look()
    }
    expect(endOf(archived = false).map(_.has("checkpoint")), Seq(false))
    val events = endOf(archived = true)
    expect(events.map(_.has("checkpoint")), Seq(true, false))
    expect(events.head.sub("checkpoint").long("batch_id"), 0L)
  }
}
