package rhino.spark.modify

import java.nio.charset.StandardCharsets.UTF_8

/** Python functions that are nobody's, as PySpark pickles a UDF: a function and its return type. */
private[modify] object MadeUpCode {

  /** `operator.pos` and a LongType. A worker that loads it imports what is there of pandas and PyArrow. */
  val Imports: Array[Byte] = pickled(
    """cbuiltins
      |exec
      |(S'try:\n import pandas, pyarrow\nexcept Exception:\n pass'
      |tR0(coperator
      |pos
      |cpyspark.sql.types
      |LongType
      |(tRt.""")

  /** `pandas.isnull` and a BooleanType. */
  val IsNull: Array[Byte] = pickled(
    """(cpandas
      |isnull
      |cpyspark.sql.types
      |BooleanType
      |(tRt.""")

  /** `text`: in the first protocol of pickle, which each version of Python reads. */
  private def pickled(text: String): Array[Byte] = text.stripMargin.getBytes(UTF_8)
}
