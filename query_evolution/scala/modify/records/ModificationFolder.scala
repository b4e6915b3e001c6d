package rhino.spark.modify.records

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.permission.FsPermission
import org.json4s.JsonDSL._
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

import rhino.spark.modify.jars.JarFile

/**
 * The folder `modifications` of a query checkpoint: records/<number> and jars/<digest>.jar by `rhino modify`;
 * tables/<number>, outcomes/<number>, bindings/<batch>, returns/<batch>, figures/<batch> and comparisons/<number> by
 * the driver. Every file is written once, atomically.
 */
private[spark] class ModificationFolder(checkpoint: Path, hadoop: Configuration) {
  private implicit val formats: Formats = DefaultFormats
  private val root = new Path(checkpoint, "modifications")
  private lazy val system = checkpoint.getFileSystem(hadoop)

  /** Also as rhino://file/... */
  val isLocal: Boolean = system.getUri.getScheme == "file" || checkpoint.toUri.getAuthority == "file"

  private val facts: FactFiles = if (isLocal) LocalFactFiles.of(root) else new HadoopFactFiles(root, hadoop)

  def exists: Boolean = facts.exists
  def numbers(kind: String): Seq[Long] = facts.numbers(kind)

  def record(number: Long): Modification = {
    val bytes = facts.bytes("records", number)
    val its = Modification.read(number, new String(bytes, UTF_8)).copy(sha256 = JarFile.digest(bytes))
      .withTable(new StaticTable(() => table(number)))
    its.jar.fold(its)(code => its.withJar(new JarFile(() => jar(number, code.digest))))
  }

  def hasTable(number: Long): Boolean = facts.numbers("tables").contains(number)

  /** Before the outcome. Returns the modification with the table that is in the folder by now. */
  def keepTable(its: Modification): Modification = Failpoints.around("table") {
    val (rows, number) = (its.join.get.table.rows, its.number)
    ownFolder("tables")
    val mine = ModificationFolder.unlessThere(facts.write("tables", number, rows.toFile))
    its.withTable(new StaticTable(() => table(number), if (mine) Some(rows) else None))
  }

  private def table(number: Long): TableRows =
    try {
      TableRows.ofFile(facts.bytes("tables", number))
    } catch {
      case error @ (_: IOException | _: RuntimeException) => throw new IllegalStateException(
        s"the table of modification $number, file modifications/tables/$number in the checkpoint, cannot be read " +
          s"($error): restore it, for example from a backup, or withdraw the modification", error)
    }

  private def jar(number: Long, digest: String): Array[Byte] = {
    val name = s"$digest.jar"
    try {
      val bytes = facts.bytes("jars", name)
      require(JarFile.digest(bytes) == digest, "its SHA-256 is another one")
      bytes
    } catch {
      case error @ (_: IOException | _: RuntimeException) => throw new IllegalStateException(
        s"the jar of modification $number, file modifications/jars/$name in the checkpoint, cannot be read ($error): " +
          "restore it, for example from a backup, or withdraw the modification", error)
    }
  }

  /** Everything but unreadable records, which are never bound. */
  def read(): Ledger = {
    val outcomes = numbers("outcomes").map(number => number -> fields("outcomes", number)).toMap
    val accepted = outcomes.keys.filter(number => (outcomes(number) \ "refused") == JNothing)
    val bound = numbers("bindings").map(batch => batch -> fields("bindings", batch)).toMap
    val bindings = bound.map { case (batch, its) => batch -> (its \ "records").extract[Seq[Long]] }
    val records = (accepted.toSeq ++ bindings.values.flatten).distinct.filter(numbers("records").contains)
      .map(number => number -> record(number)).toMap
    val returned = numbers("returns").map { bound => // without `from`: by a driver or command before canaries
      bound -> (fields("returns", bound) \ "from").extractOrElse(bound)
    }.toMap
    accepted.foreach(number => checkSame(records.get(number), (outcomes(number) \ "sha256").extractOpt[String]))
    for ((batch, its) <- bound; digests <- (its \ "sha256").extractOpt[Seq[String]])
      bindings(batch).zip(digests).foreach { case (number, its) => checkSame(records.get(number), Some(its)) }
    val judged = numbers("figures").map { batch =>
      batch -> (fields("figures", batch) \ "trials").extract[Map[Long, Int]]
    }.toMap
    def fits(number: Long) = outcomes.get(number).map(_ \ "fits").flatMap(_.extractOpt[Set[String]])
    Ledger(
      records.map { case (number, its) => number -> its.fitting(fits(number).getOrElse(Set.empty)) }, accepted.toSet,
      bindings, returned, judged)
  }

  /** No digest: a former driver, which wrote none, has decided. */
  private def checkSame(record: Option[Modification], digest: Option[String]): Unit =
    for (its <- record if digest.exists(_ != its.sha256)) throw new IllegalStateException(
      s"the file modifications/records/${its.number} in the checkpoint is not the one that was checked, because its " +
        "SHA-256 is another one: restore it, for example from a backup")

  /** With what the class of a jar was checked for, because a later run may have another function of the name. */
  def accept(its: Modification): Unit = Failpoints.around("accept") {
    val fits: JObject = its.jar.fold(JObject())("fits" -> _.fits.toSeq.sorted)
    write("outcomes", its.number, ("checked_ms" -> System.currentTimeMillis()) ~ ("sha256" -> its.sha256) ~ fits)
  }

  def refuse(number: Long, reason: String): Unit = Failpoints.around("refuse") {
    write("outcomes", number, ("checked_ms" -> System.currentTimeMillis()) ~ ("refused" -> reason))
  }

  /** `replaced`: the numbers of the records that these take the place of. */
  def bind(batch: Long, records: Seq[Modification], replaced: Seq[Long]): Unit = Failpoints.around("bind") {
    write("bindings", batch, ("records" -> records.map(_.number)) ~ ("sha256" -> records.map(_.sha256)) ~
      ("replaces" -> replaced) ~ ("bound_ms" -> System.currentTimeMillis()))
  }

  /** What came in force with the batch `bound` does not count from batch `from` on. */
  def giveUp(bound: Long, from: Long, reason: String): Unit = Failpoints.around("return") {
    write("returns", bound,
      ("from" -> from) ~ ("reason" -> reason) ~ ("returned_ms" -> System.currentTimeMillis()))
  }

  /** `trials`: by canary, how many of its batches are left after this one. */
  def judge(batch: Long, figures: Figures, trials: Map[Long, Int]): Unit = Failpoints.around("judge") {
    write("figures", batch, ("batch_ms" -> figures.batchMs) ~ ("timed" -> figures.timed) ~ ("rows" -> figures.rows) ~
      ("trials" -> trials.map { case (number, left) => number.toString -> left }))
  }

  /**
   * For the one who asked for a dry run. It may have values of rows, so only this user may read the folder. The command
   * removes what it has read. What nobody has read goes with a later dry run.
   */
  def answer(number: Long, json: JObject): Unit = {
    val folder = ownFolder("comparisons")
    val files = CheckpointFileManager.create(root, hadoop)
    val old = System.currentTimeMillis() - ModificationFolder.AnswersMs
    files.list(folder).filter(_.getModificationTime < old).foreach(file => files.delete(file.getPath))
    write("comparisons", number, json)
  }

  def committed(batch: Long): Boolean = system.exists(new Path(checkpoint, s"commits/$batch"))

  /** Whether a record was accepted before the offsets of the batch were logged. Both times are of one file system. */
  def acceptedBefore(number: Long, batch: Long): Boolean = {
    def time(path: String): Long = system.getFileStatus(new Path(checkpoint, path)).getModificationTime
    time(s"modifications/outcomes/$number") < time(s"offsets/$batch")
  }

  /** A folder with values of rows: only this user may read it. */
  private def ownFolder(kind: String): Path = {
    val folder = new Path(root, kind)
    CheckpointFileManager.create(root, hadoop).mkdirs(folder)
    if (isLocal) Files.setPosixFilePermissions(
      Paths.get(folder.toUri.getPath), PosixFilePermissions.fromString("rwx------"))
    else system.setPermission(folder, new FsPermission("700"))
    folder
  }

  private def write(kind: String, number: Long, json: JObject): Unit =
    facts.write(kind, number, compact(render(json)))

  private def fields(kind: String, number: Long): JValue = parse(facts.text(kind, number))
}

private[modify] object ModificationFolder {
  private val AnswersMs = 600_000L

  /** A writer has decided before: the other side's file stands. */
  def unlessThere(write: => Unit): Boolean =
    try { write; true } catch { case _: FileAlreadyExistsException => false }
}
