package rhino.spark.modify

import java.lang.invoke.MethodHandle

/**
 * A function of a jar, as plans carry it. The tasks that call it make an object of the class, each its own. `bytes`:
 * the jar.
 */
private[spark] class JarFunction(val className: String, val digest: String, bytes: () => Array[Byte], arity: Int)
  extends CalledFunction(arity) {

  override protected def method(): MethodHandle = {
    val its = newInstance()
    val form = FunctionForm.of(its.getClass, arity).getOrElse(
      throw new IllegalStateException(s"$className does not take $arity arguments")) // the check has seen to that
    form.bound(its)
  }

  /** With the classes of the thread that asks. Nothing of the class runs. */
  def loaded(): Class[_] = {
    val parent = Option(Thread.currentThread.getContextClassLoader).getOrElse(getClass.getClassLoader)
    JarClass.of(className, JarClassLoader.of(digest, bytes, parent))
  }

  /** Throws IllegalArgumentException with what is wrong with the class. */
  def newInstance(): AnyRef = JarClass.instance(loaded())
}
