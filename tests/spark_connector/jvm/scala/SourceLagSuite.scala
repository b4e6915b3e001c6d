package rhino.spark

import rhino.spark.driver.SourceLag

class SourceLagSuite extends Suite {
  private def lags(
      start: String, end: String, latest: String, metrics: Map[String, String] = Map.empty): Seq[SourceLag] =
    SourceLag.of("topic", start, end, latest, metrics)

  test("the lag is the sum over all partitions of what is after the end of the batch") {
    val found = lags(
      """{"t":{"0":10,"1":20}}""", """{"t":{"0":15,"1":20}}""", """{"t":{"0":100,"1":27}}""",
      Map("maxOffsetsBehindLatest" -> "85"))
    expect(found, Seq(SourceLag("topic", "offsets", 92, 5)))
  }

  test("a partition that is new, or was deleted, does not count") {
    val found = lags("""{"t":{"0":10}}""", """{"t":{"0":15,"2":9}}""", """{"t":{"0":16,"1":1000}}""")
    expect(found, Seq(SourceLag("topic", "offsets", 1, 5)))
  }

  test("offsets may be plain numbers, and the first batch has no start") {
    expect(lags(null, "5", "9"), Seq(SourceLag("topic", "offsets", 4, 0)))
  }

  test("offsets before those of the batch are no lag") {
    expect(lags("5", "9", "7"), Seq(SourceLag("topic", "offsets", 0, 4)))
  }

  test("what is no number is no offset, and metrics count instead") {
    val metrics = Map(
      "numFilesOutstanding" -> "12", "numBytesOutstanding" -> "3.5", "avgMsBehindLatest" -> "4", "version" -> "8",
      "maxMsBehindLatest" -> "6", "minMsBehindLatest" -> "1")
    val found = lags("""{"id":"a","n":1}""", """{"id":"a","n":2}""", """{"id":"a","n":3}""", metrics)
    expect(found.map(lag => (lag.unit, lag.behind)),
      Seq(("maxMsBehindLatest", 6.0), ("numBytesOutstanding", 3.5), ("numFilesOutstanding", 12.0)))
  }

  test("names are the same in every run, and different within a query") {
    val objects = Seq("org.example.Stream@1620663c", "KafkaV2[Subscribe[t]]", "org.example.Stream@2bad", null)
    expect(SourceLag.names(objects), Seq("Stream", "KafkaV2[Subscribe[t]]", "Stream #2", "source"))
  }

  test("a source that reports nothing usable has no lag") {
    expect(lags(null, null, null), Nil)
    expect(lags("{}", "{}", "{}"), Nil)
    expect(lags("1", "2", "not JSON"), Nil)
    expect(lags("1", "2", null, Map("numFilesOutstanding" -> "many", "numBytesOutstanding" -> "NaN")), Nil)
    expect(lags("1", "2", null, Map("numFilesOutstanding" -> "-1")), Nil)
  }
}
