package rhino.spark.modify.records

import org.json4s._
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction

import rhino.spark.modify.jars.{JarCode, JarFile}

/**
 * A change of a running query, as `rhino modify` has recorded it. It is never changed.
 *
 * @param number   from 1, in the order of the records
 * @param kind     what it changes: function, filter, join or columns
 * @param target   the name of the function, or of the observed point
 * @param removes  whether it takes former modifications of its slot out
 * @param dryRun   whether it is only to be checked
 * @param code     for a Python function: what PySpark pickles for a UDF, a function and its return type
 * @param evalType for a Python function: PySpark's number of the kind of UDF
 * @param returns  for a Python function: its return type as JSON
 * @param filter   for a filter: a condition in SQL
 * @param columns  for columns or a join: expressions in SQL by the names of columns
 * @param canary   its first batches are judged
 * @param takes    for a scalar function: the least and the most arguments, if that is known
 * @param guard    for a processor of transformWithState: a UDF that compares the state variables of two of them
 * @param sample   for a dry run of a function: it is compared with the present one
 * @param join     for a join: with which table, and how
 * @param functions for a filter, join or columns: the Python functions that its SQL may call
 * @param jar      for a function of Scala or Java: its new class
 * @param sha256   of its file
 */
private[spark] case class Modification(
    number: Long, kind: String, target: String, removes: Boolean, dryRun: Boolean, code: Array[Byte] = Array.empty,
    evalType: Int = 0, returns: String = "", filter: String = "", columns: Map[String, String] = Map.empty,
    canary: Option[Canary] = None, takes: Option[(Int, Int)] = None,
    sample: Option[SampleWanted] = None, guard: Array[Byte] = Array.empty, join: Option[TableJoin] = None,
    functions: Seq[PointFunction] = Nil, jar: Option[JarCode] = None, sha256: String = "") {

  def withJar(file: JarFile): Modification = copy(jar = jar.map(_.copy(jar = file)))

  /** `texts`: of the shapes of the functions that its class was checked for. */
  def fitting(texts: Set[String]): Modification = copy(jar = jar.map(_.copy(fits = texts)))

  def withTable(table: StaticTable): Modification = copy(join = join.map(_.copy(table = table)))

  /** PySpark makes a plain UDF with or without Arrow, by the session of the process: the function is the same. */
  def fits(kind: Int): Boolean = kind == evalType || Modification.Plain(kind) && Modification.Plain(evalType)

  /** Of several modifications of one slot, the newest one counts. */
  def slot: (String, String) = (kind, target)

  override def toString: String = s"modification $number ($kind $target)"
}

/**
 * @param rows how many rows both functions get at most
 * @param code what PySpark pickles for the UDF that compares them
 */
private[spark] case class SampleWanted(rows: Int, code: Array[Byte])

private[spark] object Modification {
  val Function = "function"
  val Filter = "filter"
  val Join = "join"
  val Columns = "columns"
  /** Ends the kind in a record with functions. A driver that does not know functions refuses such a kind. */
  private val WithFunctions = "+functions"
  /** The same for a record with a class of a jar. */
  private val WithJar = "+jar"
  private val Plain = Set(100, 101) // SQL_BATCHED_UDF, SQL_ARROW_BATCHED_UDF: part of PySpark's protocol
  private implicit val formats: Formats = DefaultFormats

  /** Throws IllegalArgumentException if the record is not readable. */
  def read(number: Long, text: String): Modification =
    try {
      val json = parse(text)
      def one[T: Manifest](name: String): T = (json \ name).extract[T]
      val written = one[String]("kind")
      val kind = if (written == Function + WithJar) Function else written.stripSuffix(WithFunctions)
      val functions = if (written.endsWith(WithFunctions)) PointFunction.read(json \ "functions") else Nil
      val jar = if (written.endsWith(WithJar)) Some(JarCode.read(json \ "jar")) else None
      require(Set(Function, Filter, Join, Columns)(kind), s"this version of Rhino does not know the kind '$written'")
      Modification(
        number, kind, one[String]("target"), one[Boolean]("removes"), one[Boolean]("dry_run"),
        java.util.Base64.getDecoder.decode(one[String]("code")), one[Int]("eval_type"), one[String]("returns"),
        one[String]("filter"), one[Map[String, String]]("columns"), canary(json \ "canary"),
        PointFunction.takes(json \ "takes"), sample(json \ "sample"),
        java.util.Base64.getDecoder.decode((json \ "guard").extractOrElse("")), TableJoin.read(json \ "join"),
        functions, jar)
    } catch {
      case error @ (_: MappingException | _: com.fasterxml.jackson.core.JacksonException |
          _: IllegalArgumentException) =>
        throw new IllegalArgumentException(s"record $number is not readable: ${error.getMessage}", error)
    }

  private def sample(json: JValue): Option[SampleWanted] = json match {
    case its: JObject =>
      val code = java.util.Base64.getDecoder.decode((its \ "code").extract[String])
      Some(SampleWanted((its \ "rows").extract[Int], code))
    case _ => None
  }

  private def canary(json: JValue): Option[Canary] = json match {
    case its: JObject =>
      Some(Canary(
        (its \ "batches").extract[Int], (its \ "max_batch_ms").extractOpt[Long], (its \ "point").extract[String],
        (its \ "min_rows").extractOpt[Long], (its \ "max_rows").extractOpt[Long]))
    case _ => None
  }
}

/**
 * A Python function that comes with a modification, and that its SQL calls by its name.
 *
 * @param code     what PySpark pickles for a UDF: the function and its return type
 * @param evalType PySpark's number of the kind of UDF
 * @param returns  its return type as JSON
 * @param python   the version of Python that has pickled it, such as 3.11. Another one does not run its code.
 * @param takes    the least and the most arguments, if that is known
 */
private[spark] case class PointFunction(
    name: String, code: Array[Byte], evalType: Int, returns: String, python: String, takes: Option[(Int, Int)]) {

  /** Names of functions in SQL have no case. */
  def isCalledBy(call: UnresolvedFunction): Boolean = call.nameParts match {
    case Seq(its) => its.equalsIgnoreCase(name)
    case _ => false
  }
}

private[spark] object PointFunction {
  private implicit val formats: Formats = DefaultFormats

  /** Throws MappingException or IllegalArgumentException. */
  def read(json: JValue): Seq[PointFunction] = json match {
    case JObject(fields) => fields.map { case (name, its) =>
      PointFunction(
        name, java.util.Base64.getDecoder.decode((its \ "code").extract[String]), (its \ "eval_type").extract[Int],
        (its \ "returns").extract[String], (its \ "python").extract[String], takes(its \ "takes"))
    }
    case _ => throw new IllegalArgumentException("no functions")
  }

  /** The least and the most arguments of a function. */
  def takes(json: JValue): Option[(Int, Int)] =
    json.extractOpt[Seq[Int]].filter(_.size == 2).map(bounds => (bounds.head, bounds(1)))
}
