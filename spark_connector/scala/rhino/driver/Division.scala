package rhino.spark.driver

import scala.collection.mutable
import scala.util.hashing.MurmurHash3

/** Divides the virtual nodes of a worker among its executors. */
private[spark] object Division {

  /**
   * An executor for each of `nodes`, which are names of virtual nodes. No executor gets more than its share, which is
   * rounded up. A node stays where it was (`former`) as far as the shares allow. So the loss of an executor moves only
   * its own nodes, and a new one takes no more than its share. Other nodes go to the executor with the highest hash of
   * node and executor that has room (rendezvous hashing with bounded loads).
   */
  def of(nodes: Seq[String], executors: Seq[String], former: String => Option[String]): Map[String, String] =
    if (executors.size == 1) nodes.map(_ -> executors.head).toMap else shared(nodes, executors, former)

  private def shared(
      nodes: Seq[String], executors: Seq[String], former: String => Option[String]): Map[String, String] = {
    val share = (nodes.size + executors.size - 1) / executors.size
    val room = mutable.Map.from(executors.map(_ -> share))
    val chosen = mutable.Map.empty[String, String]
    def choose(node: String, executor: String): Unit = {
      chosen.put(node, executor)
      room(executor) -= 1
    }
    val before = for (node <- nodes; executor <- former(node) if room.contains(executor)) yield
      (-hash(node, executor), node, executor)
    before.sorted.foreach { case (_, node, executor) => if (room(executor) > 0) choose(node, executor) }
    nodes.filterNot(chosen.contains).foreach { node =>
      choose(node, executors.filter(room(_) > 0).maxBy(executor => (hash(node, executor), executor)))
    }
    chosen.toMap
  }

  private def hash(node: String, executor: String): Long = MurmurHash3.stringHash(s"$node/$executor").toLong
}
