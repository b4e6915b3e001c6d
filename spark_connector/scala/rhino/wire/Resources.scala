package rhino.spark.wire

import java.nio.charset.StandardCharsets.UTF_8

/** Files in this jar that are no classes. */
private[rhino] object Resources {
  def read(path: String): Array[Byte] = {
    val stream = getClass.getResourceAsStream(path)
    if (stream == null) throw new IllegalStateException(s"the Rhino jar has no $path: build it again with `rhino jar`")
    try stream.readAllBytes() finally stream.close()
  }

  def text(path: String): String = new String(read(path), UTF_8)
}
