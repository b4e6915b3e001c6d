package rhino.spark.modify

import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.json4s._

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
