package rhino.spark.modify

import java.lang.invoke.{MethodHandle, MethodType}

/**
 * What Spark calls in place of a function of Scala or Java that has a name. The Java code that Spark generates names
 * the class of the function. So that code stays as it is when the function is replaced, and executors have nothing to
 * compile.
 */
private[spark] abstract class CalledFunction(val arity: Int) extends Serializable {

  /** The function itself, as the method that is called. Each task asks once. */
  protected def method(): MethodHandle

  /** Takes and returns objects, as many as Spark passes, so that a call needs no array of them. */
  @transient private[modify] lazy val called: MethodHandle = method().asType(MethodType.genericMethodType(arity))

  /** What `ScalaUDF` takes. It is one object, so plans see that calls with the same arguments are equal. */
  @transient lazy val asFunction: AnyRef = Arities.of(arity, this)
}

/** A function of the application. */
private[spark] class OwnFunction(its: AnyRef, arity: Int) extends CalledFunction(arity) {
  override protected def method(): MethodHandle = FunctionForm.ofScala(arity).bound(its)
}
