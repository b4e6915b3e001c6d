package rhino.spark.restart

import java.util.concurrent.{ConcurrentHashMap, Executors}

/** Acts on files, each on a thread of its own: a file system may hang, and those of other queries go on. */
private[spark] class Apart(name: String) {
  private val busy = ConcurrentHashMap.newKeySet[AnyRef]()
  private val threads = Executors.newCachedThreadPool { work =>
    val thread = new Thread(work, name)
    thread.setDaemon(true)
    thread
  }

  /** Returns at once. Does nothing while the former act for `key` goes on. */
  def apply(key: AnyRef)(act: => Unit): Unit = if (busy.add(key)) threads.execute { () =>
    try act
    finally busy.remove(key)
  }
}
