package rhino.spark

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}

import scala.util.Try

import org.json4s._
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.{AgnosticEncoders, ExpressionEncoder}
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, BoundReference, ScalaUDF}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext
import org.apache.spark.sql.types._

import rhino.spark.jarred.Jars
import rhino.spark.modify.checks.JarCheck
import rhino.spark.modify.comparison.JarComparison
import rhino.spark.modify.jars.{JarClassLoader, JarFile, JarFunction, JarShape, OwnFunction}

/** Classes of jars in place of functions of Scala and Java. */
class JarSuite extends Suite {
  private val long = AttributeReference("value", LongType)()
  private val present = ScalaUDF((x: Any) => x, LongType, Seq(long), udfName = Some("score"))
  private val never = present.copy(children = Seq(long.withNullability(false)))
  private type F1 = AnyRef => AnyRef

  private def function(name: String, jar: Array[Byte], arity: Int = 1): JarFunction =
    new JarFunction(s"rhino.spark.jarred.$name", JarFile.digest(jar), () => jar, arity)

  private def within[T](parent: ClassLoader)(act: => T): T = {
    val (thread, before) = (Thread.currentThread, Thread.currentThread.getContextClassLoader)
    thread.setContextClassLoader(parent)
    try act finally thread.setContextClassLoader(before)
  }

  /** What is wrong with a class, in a process without the classes of the tests. */
  private def wrong(name: String, jar: Array[Byte], of: ScalaUDF = present): String =
    within(Jars.without)(JarCheck.wrong(function(name, jar, of.children.size), Seq(JarShape.of(of))))

  private def said(name: String, part: String, of: ScalaUDF = present): Unit = {
    val reason = wrong(name, Jars.of(name), of)
    assert(reason.contains(part), s"'$part' is not in '$reason'")
  }

  test("a class of a jar is called, of Java's form and of Scala's, and a Scala object") {
    def called(name: String, files: String*): AnyRef =
      function(name, Jars.of(files: _*)).asFunction.asInstanceOf[F1](Long.box(5))
    expect(called("Plus", "Plus"), Long.box(6))
    expect(called("Twice", "Twice"), Long.box(10))
    expect(called("Minus", "Minus", "Minus$"), Long.box(-5))
    val sum = function("Sum", Jars.of("Sum"), arity = 2).asFunction.asInstanceOf[(AnyRef, AnyRef) => AnyRef]
    expect(sum(Long.box(2), Long.box(3)), Long.box(5))
  }

  test("a function travels to executors, and each task has an object of its own") {
    val made = function("Plus", Jars.of("Plus")).asFunction
    val bytes = new ByteArrayOutputStream
    new ObjectOutputStream(bytes).writeObject(made)
    val copy = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray)).readObject()
    expect(copy.asInstanceOf[F1](Long.box(1)), Long.box(2))
    expect(copy.asInstanceOf[F1](null), null)
  }

  test("Spark calls a function by Scala's interface of its number of arguments") {
    for (arity <- 0 to 22) {
      val its = function("Plus", Array.empty[Byte], arity).asFunction
      expect(Class.forName(s"scala.Function$arity").isInstance(its), true)
    }
  }

  test("a batch has the same Java code with a function of the query and with a class of a jar in its place") {
    val bound = present.copy(children = Seq(BoundReference(0, LongType, nullable = true)))
    def text(of: ScalaUDF): String = {
      val made = of.genCode(new CodegenContext)
      s"${made.code} ${made.isNull} ${made.value}"
    }
    def replaced(name: String): ScalaUDF = bound.copy(function = function(name, Jars.of(name)).asFunction)
    val own = bound.copy(function = new OwnFunction(bound.function, 1).asFunction)
    expect(text(replaced("Plus")), text(own))
    expect(text(replaced("Plus")), text(replaced("Twice")))
    expect(text(own) == text(bound), false) // it names the class of the function for errors
    expect(own.eval(InternalRow(7L)), 7L)
  }

  test("a function of the query is called for each row, and its error is the cause of Spark's") {
    val failing = present.copy(
      function = new OwnFunction((_: Any) => throw new IllegalStateException("no score"), 1).asFunction,
      children = Seq(BoundReference(0, LongType, nullable = true)))
    fails[SparkException]("score (")(failing.eval(InternalRow(7L)))
    expect(Try(failing.eval(InternalRow(7L))).failed.get.getCause.getMessage, "no score")
  }

  test("a class of the jar comes before one of the application, and Spark is that of the process") {
    val its = function("Plus", Jars.of("Plus"))
    expect(its.loaded() eq classOf[rhino.spark.jarred.Plus], false)
    expect(its.loaded().getClassLoader.isInstanceOf[JarClassLoader], true)
    expect(its.loaded() eq its.loaded(), true)
    expect(its.loaded().getInterfaces.head eq classOf[org.apache.spark.sql.api.java.UDF1[_, _]], true)
    expect(wrong("Plus", Jars.of("Plus")), "")
    expect(wrong("Minus", Jars.of("Minus", "Minus$"), never), "")
  }

  test("what cannot be loaded is refused with the way out") {
    said("Base", "rhino.spark.jarred.Base is abstract: give a class of it", present.copy(dataType = StringType,
      children = Seq(AttributeReference("t", StringType)())))
    said("Needs", "no public class with a public constructor without arguments")
    said("Nothing", "Nothing is no function: implement org.apache.spark.sql.api.java.UDF1, or scala.Function1")
    said("Sum", "the query calls score with 1 arguments, and rhino.spark.jarred.Sum takes 2")
    val needs = wrong("NeedsOther", Jars.of("NeedsOther"))
    expect(needs, "rhino.spark.jarred.NeedsOther needs the class rhino.spark.jarred.Other, which neither the jar nor " +
      "the executors have: put it into the jar")
    expect(wrong("NeedsOther", Jars.of("NeedsOther", "Other")), "")
    expect(wrong("Plus", Jars.of("Twice")), "the jar has no class rhino.spark.jarred.Plus")
    expect(
      within(getClass.getClassLoader)(JarCheck.wrong(function("Plus", Jars.of("Twice")), Nil :+ JarShape.of(present))),
      "rhino.spark.jarred.Plus is not a class of the jar: the application or Java has it")
  }

  test("a constructor that fails, and a class of a newer Java, are refused") {
    val text = present.copy(dataType = StringType, children = Seq(AttributeReference("t", StringType)()))
    val reason = wrong("Fails", Jars.of("Fails", "Base"), text)
    assert(reason.contains("the constructor of rhino.spark.jarred.Fails has failed") && reason.contains("no licence"))
    val newer = Jars.changed("Plus")(bytes => bytes.updated(6, 3.toByte))
    val old = wrong("Plus", newer)
    assert(old.contains("was compiled for a newer Java than") && old.contains("compile it with --release"), old)
  }

  test("types that the class declares must be those of the query") {
    said("Whole", "score returns BIGINT, and rhino.spark.jarred.Whole returns java.lang.Integer")
    val text = Seq(AttributeReference("t", StringType)())
    said("Plus", "argument 1 of score is STRING, and comes as java.lang.String, and", present.copy(children = text))
    expect(wrong("SameText", Jars.of("SameText", "Base"), present.copy(children = text, dataType = StringType)), "")
    val reason = wrong("SameText", Jars.of("SameText", "Base"))
    assert(reason.contains("argument 1 of score is BIGINT, and comes as java.lang.Long"), reason)
  }

  test("a null that would become a 0, and a result that may be null where it never was, are refused") {
    said("Twice", "argument 1 of score may be null, and rhino.spark.jarred.Twice takes long, which would be 0 or false")
    expect(wrong("Twice", Jars.of("Twice"), never), "")
    said("Plus", "score is never null in the query, and a result of", never.copy(nullable = false))
    expect(wrong("Twice", Jars.of("Twice"), never.copy(nullable = false)), "")
  }

  test("what a function of a Scala application gives and takes is what its encoders have") {
    val primitive = Some(ExpressionEncoder(AgnosticEncoders.PrimitiveLongEncoder))
    val typed = present.copy(inputEncoders = Seq(primitive), outputEncoder = primitive, nullable = false)
    expect(JarShape.of(typed).text, """(BIGINT java.lang.Long primitive) => "long" java.lang.Long not null""")
    expect(wrong("Twice", Jars.of("Twice"), typed), "")
    said("Whole", "score returns BIGINT, and rhino.spark.jarred.Whole returns java.lang.Integer", typed)
    val text = Some(ExpressionEncoder(AgnosticEncoders.StringEncoder))
    said("Plus", "comes as java.lang.String, and", typed.copy(inputEncoders = Seq(text)))
  }

  test("a class of the application that the jar has, too, is no argument") {
    val shape = JarShape.of(present)
    val other = shape.arguments.head.copy(kind = "STRUCT", className = "rhino.spark.jarred.Other")
    val its = function("TakesOther", Jars.of("TakesOther", "Other"))
    fails[IllegalArgumentException]("The jar has a class of this name, too: leave it out of the jar")(
      shape.copy(arguments = Seq(other)).check(its.loaded()))
    val without = function("TakesOther", Jars.of("TakesOther"))
    within(getClass.getClassLoader)(shape.copy(arguments = Seq(other)).check(without.loaded()))
  }

  test("a dry run calls the present version and the new one, and counts what differs") {
    def compared(name: String, of: ScalaUDF, values: Any*): JValue = {
      val columns = Seq(BoundReference(0, LongType, nullable = true))
      val (old, jar) = (of.copy(children = columns), function(name, Jars.of(name)))
      val made = new JarComparison(old, old.copy(function = jar.asFunction), "UTC")
      parse(made.result(values.map(InternalRow(_)).iterator))
    }
    val plus = compared("Plus", present.copy(function = (x: Any) => if (x == 3L) 4L else x), 2L, 3L, null)
    expect((plus \ "rows", plus \ "different"), (JInt(3), JInt(1)))
    val texts = Seq("given" -> "(2)", "old" -> "2", "new" -> "3").map { case (of, its) => of -> JString(its) }
    expect(plus \ "examples", JArray(List(JObject(texts.toList))))
    val failing = (x: Any) => if (x == 3L) sys.error("no score") else 3L
    val fails = compared("Plus", present.copy(function = failing), 2L, 3L)
    expect((fails \ "different", fails \ "old" \ "failed", fails \ "new" \ "failed"), (JInt(1), JInt(1), JInt(0)))
    expect(fails \ "old" \ "error", JString("java.lang.RuntimeException: no score"))
    val primitive = Some(ExpressionEncoder(AgnosticEncoders.PrimitiveLongEncoder))
    val typed = present.copy(function = (x: Long) => x, inputEncoders = Seq(primitive), outputEncoder = primitive)
    val twice = compared("Twice", typed, null, 0L, 4L)
    expect((twice \ "rows", twice \ "different"), (JInt(3), JInt(1)))
  }

  test("a shape is one text for all that the class was checked for") {
    val shape = JarShape.of(present)
    expect(shape.text, """(BIGINT java.lang.Long) => "long" """)
    expect(JarShape.of(never).text, shape.text)
    val others = Seq(
      present.copy(dataType = StringType), present.copy(nullable = false),
      present.copy(children = Seq(AttributeReference("t", StringType)())))
    for (other <- others)
      expect(JarShape.of(other).text == shape.text, false)
  }
}
