package rhino.spark.store

/** The facts in the name of a state file, which is relative to the root of its store. */
private[rhino] object StateFileName {
  private val Versioned = """(\d+)_([^/]+)\.(?:changelog|zip)""".r
  private val Checksum = """.*\.crc(\.[^/]+\.tmp)?""".r
  private val OfMemoryProvider = """.*\.(delta|snapshot)""".r

  /** Version and checkpoint id of a changelog or snapshot in format 2. None for all other files. */
  def version(name: String): Option[(Long, String)] = name match {
    case Versioned(version, id) => Some(version.toLong -> id)
    case _ => None
  }

  def isChangelog(name: String): Boolean = name.endsWith(".changelog")

  /** Whether the file is one of Spark's file checksums (`checkpoint.fileChecksum.enabled`), finished or not. */
  def isChecksum(name: String): Boolean = Checksum.matches(name)

  def isTemporary(name: String): Boolean = name.endsWith(".tmp")

  /** Whether Spark's in-memory provider writes files of this name. */
  def isOfMemoryProvider(name: String): Boolean = OfMemoryProvider.matches(name)

  /** Files of stores have a dot in their names; folders have none. */
  def isFile(name: String): Boolean = name.contains(".")
}
