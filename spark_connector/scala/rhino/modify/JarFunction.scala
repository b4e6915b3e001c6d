package rhino.spark.modify

import java.lang.invoke.{MethodHandle, MethodHandles, MethodType}

/**
 * A function of a jar, as plans carry it. The tasks that call it make an object of the class, each its own. `bytes`:
 * the jar.
 */
private[spark] class JarFunction(val className: String, val digest: String, bytes: () => Array[Byte], val arity: Int)
  extends Serializable {

  @transient private lazy val called: MethodHandle = {
    val its = newInstance()
    val form = FunctionForm.of(its.getClass, arity).getOrElse(
      throw new IllegalStateException(s"$className does not take $arity arguments")) // the check has seen to that
    MethodHandles.publicLookup
      .findVirtual(form.interface, form.method, MethodType.genericMethodType(arity))
      .bindTo(its)
      .asSpreader(classOf[Array[AnyRef]], arity)
      .asType(MethodType.methodType(classOf[AnyRef], classOf[Array[AnyRef]]))
  }

  def apply(arguments: Array[AnyRef]): AnyRef = called.invokeExact(arguments)

  /** With the classes of the thread that asks. Nothing of the class runs. */
  def loaded(): Class[_] = {
    val parent = Option(Thread.currentThread.getContextClassLoader).getOrElse(getClass.getClassLoader)
    JarClass.of(className, JarClassLoader.of(digest, bytes, parent))
  }

  /** Throws IllegalArgumentException with what is wrong with the class. */
  def newInstance(): AnyRef = JarClass.instance(loaded())

  /** What `ScalaUDF` takes. It is one object, so plans see that calls with the same arguments are equal. */
  @transient lazy val asFunction: AnyRef = Arities.of(arity, this)
}
