package rhino.spark.wire

import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import org.sparkproject.connect.grpc.MethodDescriptor
import org.sparkproject.connect.grpc.protobuf.ProtoUtils
import org.sparkproject.connect.protobuf.{DescriptorProtos, Descriptors, DynamicMessage}
import org.sparkproject.connect.protobuf.Descriptors.{Descriptor, FieldDescriptor, FileDescriptor}

/** Rhino's protobuf messages by name, from the descriptor set in this jar, so that no generated classes are needed. */
private[rhino] object Schema {
  type Message = DynamicMessage

  private val files: Map[String, FileDescriptor] = {
    val set = DescriptorProtos.FileDescriptorSet.parseFrom(Resources.read("/rhino/descriptors.pb"))
    set.getFileList.asScala.foldLeft(Map.empty[String, FileDescriptor]) { (known, proto) =>
      val dependencies = proto.getDependencyList.asScala.map(known).toArray
      known + (proto.getName -> FileDescriptor.buildFrom(proto, dependencies))
    }
  }
  private val messages: Map[String, Descriptor] =
    files.values.flatMap(_.getMessageTypes.asScala).map(d => d.getName -> d).toMap

  def descriptor(name: String): Descriptor =
    messages.getOrElse(name, throw new NoSuchElementException(s"no message $name in the descriptor set"))

  /** Builds a message from field names and values: numbers, strings, booleans, messages, and Seqs of them. */
  def message(name: String, fields: (String, Any)*): Message =
    filled(DynamicMessage.newBuilder(descriptor(name)), fields)

  /** Copies `message` with new values of some fields. */
  def copy(message: Message, fields: (String, Any)*): Message = filled(message.toBuilder, fields)

  private def filled(builder: DynamicMessage.Builder, fields: Seq[(String, Any)]): Message = {
    fields.foreach { case (field, value) =>
      val target = fieldOf(builder.getDescriptorForType, field)
      value match {
        case values: Seq[_] => values.foreach(v => builder.addRepeatedField(target, plain(target, v)))
        case single => builder.setField(target, plain(target, single))
      }
    }
    builder.build()
  }

  private def plain(field: FieldDescriptor, value: Any): AnyRef = field.getJavaType match {
    case FieldDescriptor.JavaType.ENUM => field.getEnumType.findValueByName(value.toString)
    case FieldDescriptor.JavaType.INT => Integer.valueOf(value.asInstanceOf[Number].intValue)
    case FieldDescriptor.JavaType.LONG => java.lang.Long.valueOf(value.asInstanceOf[Number].longValue)
    case FieldDescriptor.JavaType.DOUBLE => java.lang.Double.valueOf(value.asInstanceOf[Number].doubleValue)
    case _ => value.asInstanceOf[AnyRef]
  }

  private def fieldOf(descriptor: Descriptor, name: String): FieldDescriptor = {
    val field = descriptor.findFieldByName(name)
    require(field != null, s"message ${descriptor.getName} has no field $name")
    field
  }

  implicit class Fields(val message: Message) extends AnyVal {
    private def get(name: String): AnyRef = message.getField(fieldOf(message.getDescriptorForType, name))
    def string(name: String): String = get(name).asInstanceOf[String]
    def long(name: String): Long = get(name).asInstanceOf[Number].longValue
    def int(name: String): Int = get(name).asInstanceOf[Number].intValue
    def double(name: String): Double = get(name).asInstanceOf[Number].doubleValue
    def bool(name: String): Boolean = get(name).asInstanceOf[java.lang.Boolean]
    def enumName(name: String): String = get(name).asInstanceOf[Descriptors.EnumValueDescriptor].getName
    def sub(name: String): Message = get(name).asInstanceOf[Message]
    def has(name: String): Boolean = message.hasField(fieldOf(message.getDescriptorForType, name))
    def ints(name: String): Seq[Int] =
      get(name).asInstanceOf[java.util.List[java.lang.Integer]].asScala.toSeq.map(_.intValue)
    def strings(name: String): Seq[String] = get(name).asInstanceOf[java.util.List[String]].asScala.toSeq
    def longs(name: String): Seq[Long] =
      get(name).asInstanceOf[java.util.List[java.lang.Long]].asScala.toSeq.map(_.longValue)
    def subs(name: String): Seq[Message] = get(name).asInstanceOf[java.util.List[Message]].asScala.toSeq
  }

  /** The gRPC method `service`/`name` with dynamic messages. */
  def method(service: String, name: String): MethodDescriptor[Message, Message] = {
    val found = files.values.flatMap(_.getServices.asScala).find(_.getName == service).map(_.findMethodByName(name))
    val proto = found.filter(_ != null).getOrElse(throw new NoSuchElementException(s"no method $service/$name"))
    val kind = (proto.isClientStreaming, proto.isServerStreaming) match {
      case (false, false) => MethodDescriptor.MethodType.UNARY
      case (false, true) => MethodDescriptor.MethodType.SERVER_STREAMING
      case (true, false) => MethodDescriptor.MethodType.CLIENT_STREAMING
      case (true, true) => MethodDescriptor.MethodType.BIDI_STREAMING
    }
    MethodDescriptor.newBuilder[Message, Message]()
      .setType(kind)
      .setFullMethodName(MethodDescriptor.generateFullMethodName(s"rhino.v1.$service", name))
      .setRequestMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(proto.getInputType)))
      .setResponseMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(proto.getOutputType)))
      .build()
  }
}

/** Files in this jar that are no classes. */
private[rhino] object Resources {
  def read(path: String): Array[Byte] = {
    val stream = getClass.getResourceAsStream(path)
    if (stream == null) throw new IllegalStateException(s"the Rhino jar has no $path: build it again with `rhino jar`")
    try stream.readAllBytes() finally stream.close()
  }

  def text(path: String): String = new String(read(path), UTF_8)
}
