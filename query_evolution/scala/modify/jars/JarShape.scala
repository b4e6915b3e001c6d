package rhino.spark.modify.jars

import java.lang.reflect.{Modifier, Type}

import scala.util.Try

import org.apache.commons.lang3.ClassUtils
import org.apache.commons.lang3.reflect.TypeUtils

import org.apache.spark.sql.catalyst.{CatalystTypeConverters, JavaTypeInference}
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Literal, ScalaUDF}
import org.apache.spark.sql.types._

/**
 * What a query gives to a function of Scala or Java, and what it takes from it.
 *
 * @param returns   the type of the column
 * @param gives     the class of the result, "" if Spark takes what it can make the type of
 * @param mayBeNull whether the column may be
 */
private[spark] case class JarShape(
    name: String, arguments: Seq[JarShape.Argument], returns: DataType, gives: String, mayBeNull: Boolean) {

  /** The same for functions for which the same class will do. An application may have another one in a later run. */
  def text: String = {
    val each = arguments.map(its => s"${its.kind} ${its.className}${if (its.primitive) " primitive" else ""}")
    s"(${each.mkString(", ")}) => ${returns.json} $gives${if (mayBeNull) "" else " not null"}"
  }

  /** Throws IllegalArgumentException if a class is no function of this shape. It asks, and calls nothing. */
  def check(its: Class[_]): Unit = {
    val form = FunctionForm.of(its, arguments.size).getOrElse(refuse(FunctionForm.all(its).map(_.arity).distinct match {
      case Nil => s"${its.getName} is no function: implement org.apache.spark.sql.api.java.UDF${arguments.size}, or " +
          s"scala.Function${arguments.size}"
      case takes => s"the query calls $name with ${arguments.size} arguments, and ${its.getName} takes " +
          takes.mkString(" or ")
    }))
    val (taken, result) = form.declared(its)
    for (((argument, declared), place) <- arguments.zip(taken).zipWithIndex; one <- declared)
      checkArgument(argument, one, place + 1, its)
    checkResult(result, its)
  }

  private def checkArgument(argument: JarShape.Argument, declared: Type, place: Int, its: Class[_]): Unit = {
    val takes = TypeUtils.getRawType(declared, null)
    val said = s"argument $place of $name is ${argument.kind}, and comes as ${argument.className}"
    if (takes.getName == argument.className) {
      if (takes.getClassLoader.isInstanceOf[JarClassLoader]) refuse(
        s"$said of the application. The jar has a class of this name, too: leave it out of the jar")
    } else JarShape.known(argument.className, its).foreach { comes =>
      if (!JarShape.fits(comes, ClassUtils.primitiveToWrapper(takes))) refuse(
        s"$said, and ${its.getName} takes ${takes.getName}")
    }
    if (takes.isPrimitive && argument.mayBeNull && !argument.primitive) refuse(
      s"argument $place of $name may be null, and ${its.getName} takes $takes, which would be 0 or false: take " +
        ClassUtils.primitiveToWrapper(takes).getName)
  }

  private def checkResult(declared: Option[Type], its: Class[_]): Unit = {
    val found = declared.map(TypeUtils.getRawType(_, null))
    for (makes <- found; boxed = ClassUtils.primitiveToWrapper(makes) if makes != classOf[AnyRef]) {
      val fits =
        if (gives.nonEmpty) JarShape.known(gives, its).forall(JarShape.fits(boxed, _))
        else JarShape.typeOf(boxed).fold(!JarShape.primitive(returns))(JarShape.same(_, returns))
      if (!fits) refuse(s"$name returns ${returns.sql}, and ${its.getName} returns ${makes.getName}")
    }
    if (!mayBeNull && !found.exists(_.isPrimitive)) refuse(
      s"$name is never null in the query, and a result of ${its.getName} may be: give it a primitive result, as a " +
        "class of Scala has by Long, Int, Double or Boolean")
  }

  private def refuse(reason: String): Nothing = throw new IllegalArgumentException(reason)
}

private[spark] object JarShape {

  /**
   * @param kind      its type in SQL
   * @param className of the values that the function gets
   * @param mayBeNull whether the query may give null
   * @param primitive whether the query does not call the function for null
   */
  case class Argument(kind: String, className: String, mayBeNull: Boolean, primitive: Boolean)

  def of(udf: ScalaUDF): JarShape = {
    val arguments = udf.children.zipWithIndex.map { case (child, place) =>
      val encoder = udf.inputEncoders.lift(place).flatten
      Argument(
        child.dataType.sql, encoder.fold(comesAs(child.dataType))(classNameOf), child.nullable,
        udf.inputPrimitives.lift(place).contains(true))
    }
    JarShape(
      udf.udfName.getOrElse(""), arguments, udf.dataType, udf.outputEncoder.fold("")(classNameOf), udf.nullable)
  }

  private def classNameOf(encoder: ExpressionEncoder[_]): String =
    ClassUtils.primitiveToWrapper(encoder.clsTag.runtimeClass).getName

  /** Without an encoder, Spark makes a value of its own of each type. */
  private def comesAs(kind: DataType): String =
    Try(CatalystTypeConverters.convertToScala(Literal.default(kind).value, kind)).toOption
      .filter(_ != null).fold("")(_.getClass.getName)

  /** As the application has it. */
  private def known(name: String, its: Class[_]): Option[Class[_]] = {
    val parent = its.getClassLoader match {
      case own: JarClassLoader => own.getParent
      case other => other
    }
    Try[Class[_]](Class.forName(name, false, parent)).toOption
  }

  /** Whether values that are known to be of class `its` may be of class `wanted`. */
  private def fits(its: Class[_], wanted: Class[_]): Boolean =
    wanted.isAssignableFrom(its) || !Modifier.isFinal(its.getModifiers) && its.isAssignableFrom(wanted)

  /** Of classes that stand for one type. */
  private def typeOf(its: Class[_]): Option[DataType] =
    if (Plain(its.getName)) Try(JavaTypeInference.inferDataType(its)._1).toOption else None

  private val Plain: Set[String] = Map(
    "java.lang" -> Set("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "String"),
    "java.sql" -> Set("Date", "Timestamp"), "java.time" -> Set("LocalDate", "Instant", "LocalDateTime"),
    "java.math" -> Set("BigDecimal", "BigInteger")).flatMap { case (of, names) => names.map(of + "." + _) }.toSet

  /** Of which Spark takes one class only. */
  private def primitive(its: DataType): Boolean = its match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType => true
    case _ => false
  }

  private def same(its: DataType, wanted: DataType): Boolean = (its, wanted) match {
    case (_: DecimalType, _: DecimalType) | (_: StringType, _: StringType) => true
    case _ => its == wanted
  }
}
