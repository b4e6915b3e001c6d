package rhino.spark

import java.nio.file.Files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{JArray, JInt, JObject}
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction

import rhino.spark.modify.records.{Figures, LocalFactFiles, Modification, ModificationFolder, PointFunction}

/** Records as the driver reads them. */
class ModificationSuite extends Suite {
  private def record(kind: String, more: String = ""): String =
    s"""{"kind": "$kind", "target": "scored", "removes": false, "code": "", "eval_type": 0, "returns": "",
       |"filter": "", "columns": {"y": "plus(y)"}, "dry_run": false$more}""".stripMargin
  private val functions =
    """, "functions": {"plus": {"code": "AQI=", "eval_type": 100, "returns": "\"long\"", "takes": [1, 2],
      |"python": "3.11"}}""".stripMargin

  test("a record with functions is of the same slot as one without") {
    val its = Modification.read(1, record("columns+functions", functions))
    expect(its.slot, "columns" -> "scored")
    expect(its.functions.size, 1)
    val plus = its.functions.head
    expect((plus.name, plus.code.toSeq, plus.evalType), ("plus", Seq[Byte](1, 2), 100))
    expect((plus.returns, plus.takes, plus.python), ("\"long\"", Some((1, 2)), "3.11"))
    expect(Modification.read(1, record("columns")).functions, Seq.empty[PointFunction])
  }

  test("a record counts only if it is the one that was checked") {
    val checkpoint = Files.createTempDirectory("modified")
    val root = checkpoint.resolve("modifications")
    val folder = new ModificationFolder(new Path(s"file:$checkpoint"), new Configuration(false))
    def write(kind: String, text: String): Unit = new LocalFactFiles(root).write(kind, 1, text)
    write("records", record("filter"))
    folder.accept(folder.record(1))
    folder.bind(5, Seq(folder.record(1)), Nil)
    expect(folder.read().inForce(5).map(_.number), Seq(1L))
    Files.delete(root.resolve("records").resolve("1"))
    write("records", record("filter").replace("plus(y)", "minus(y)"))
    def refused(): Unit = fails[IllegalStateException]("records/1", "its SHA-256 is another one")(folder.read())
    refused()
    val outcome = root.resolve("outcomes").resolve("1")
    val text = Files.readString(outcome)
    Files.delete(outcome)
    refused() // by its binding
    Files.delete(root.resolve("bindings").resolve("5"))
    write("outcomes", text)
    refused() // by its outcome
  }

  test("what the driver has decided is read by its next run, and by commands") {
    val checkpoint = Files.createTempDirectory("modified")
    val root = checkpoint.resolve("modifications")
    val folder = new ModificationFolder(new Path(s"file:$checkpoint"), new Configuration(false))
    for (number <- Seq(1, 2)) new LocalFactFiles(root).write("records", number, record("filter"))
    folder.bind(5, Seq(folder.record(1)), Nil)
    folder.bind(7, Seq(folder.record(2)), Seq(1))
    folder.judge(7, Figures(220, timed = true, Map("scored" -> 12)), Map(2L -> 3))
    expect(folder.read().judged, Map(7L -> Map(2L -> 3)))
    def file(kind: String, number: Int) = parse(Files.readString(root.resolve(kind).resolve(number.toString)))
    expect(file("bindings", 7) \ "replaces", JArray(List(JInt(1))))
    expect(file("figures", 7) \ "trials", JObject("2" -> JInt(3)))
    expect(file("figures", 7) \ "rows", JObject("scored" -> JInt(12)))
  }

  test("a record with a class of a jar is of the slot of functions") {
    val digest = "0f" * 32
    def jar(sha256: String) = s""", "jar": {"class": "com.acme.Score", "sha256": "$sha256", "bytes": 12}"""
    val its = Modification.read(1, record("function+jar", jar(digest)))
    expect(its.slot, "function" -> "scored")
    expect(its.jar.map(code => (code.className, code.digest)), Some(("com.acme.Score", digest)))
    expect(Modification.read(1, record("function", jar(digest))).jar.isEmpty, true)
    fails[IllegalArgumentException]("record 1 is not readable", "is no SHA-256")(
      Modification.read(1, record("function+jar", jar("../../etc"))))
    fails[IllegalArgumentException]("record 1 is not readable")(Modification.read(1, record("function+jar")))
    fails[IllegalArgumentException]("does not know the kind 'filter+jar'")(
      Modification.read(1, record("filter+jar", jar(digest))))
  }

  test("a record of a kind that this version does not know is refused") {
    def read(kind: String, more: String = ""): Modification = Modification.read(1, record(kind, more))
    fails[IllegalArgumentException]("record 1", "does not know the kind 'columns+sorts'")(read("columns+sorts"))
    fails[IllegalArgumentException]("record 1", "does not know the kind 'sorts'")(read("sorts"))
    fails[IllegalArgumentException]("record 1 is not readable: no functions")(read("columns+functions"))
    fails[IllegalArgumentException]("record 1 is not readable")(
      read("columns+functions", """, "functions": {"plus": {}}"""))
  }

  test("SQL calls a function by its name in any case, and by nothing else") {
    val plus = Modification.read(1, record("columns+functions", functions)).functions.head
    def calls(parts: String*): Boolean = plus.isCalledBy(UnresolvedFunction(parts, Nil, isDistinct = false))
    expect((calls("plus"), calls("PLUS"), calls("plus2"), calls("s", "plus")), (true, true, false, false))
  }
}
