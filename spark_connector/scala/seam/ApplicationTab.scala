package org.apache.spark.sql.execution.streaming.state
package seam

import jakarta.servlet.http.HttpServletRequest

import scala.xml.Node

import org.apache.spark.SparkContext
import org.apache.spark.ui.{SparkUITab, UIUtils, WebUIPage}

/** A tab with one page in an application's web UI. The classes of the UI are private[spark]. */
object ApplicationTab {

  /**
   * Does nothing for an application without a UI.
   *
   * @param name  in small letters, for its address
   * @param about a text above the table, made at each request
   * @param rows  of the table, made at each request
   */
  def add(
      context: SparkContext, name: String, about: () => String, headers: Seq[String], rows: () => Seq[Seq[String]])
      : Unit = context.ui.foreach { ui =>
    val tab = new SparkUITab(ui, name) {}
    tab.attachPage(new WebUIPage("") {
      override def render(request: HttpServletRequest): Seq[Node] = {
        val table = UIUtils.listingTable[Seq[String]](headers, cells, rows(), fixedWidth = true)
        UIUtils.headerSparkPage(request, tab.name, <div><p>{about()}</p>{table}</div>, tab)
      }
    })
    ui.attachTab(tab)
  }

  private def cells(row: Seq[String]): Seq[Node] = <tr>{row.map(cell => <td>{cell}</td>)}</tr>
}
