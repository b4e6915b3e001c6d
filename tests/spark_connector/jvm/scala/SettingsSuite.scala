package rhino.spark

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkConf

import rhino.spark.driver.SparkOfJar
import rhino.spark.settings.{ClassNames, RequiredConf, Settings}
import rhino.spark.wire.Schema.Fields

class SettingsSuite extends Suite {
  private val ProviderKey = "spark.sql.streaming.stateStore.providerClass"

  private def conf(pairs: (String, String)*): SparkConf =
    new SparkConf(false).set("spark.rhino.manager", "h:7461").setAll(pairs)

  test("only the manager must be given") {
    val settings = Settings(conf())
    expect(settings, Settings(
      "h:7461", None, "/run/rhino/sidecar.sock", 1, 0, "degraded", "replicated", 60, 60, 120))
  }

  test("a jar for another version of Spark is refused, with both versions") {
    SparkOfJar.check("4.3.7", "4.3")
    fails[IllegalArgumentException]("this Rhino jar is for Spark 4.2, and this is Spark 4.3.0", "`rhino jar`")(
      SparkOfJar.check("4.3.0", "4.2"))
    fails[IllegalArgumentException]("Spark 4.30.0")(SparkOfJar.check("4.30.0", "4.3"))
    SparkOfJar.check(org.apache.spark.SPARK_VERSION)
  }

  test("protections of other queries that Rhino's settings switch off have names") {
    val own = RequiredConf.ofState.toMap
    expect(
      RequiredConf.switchedOff(own.get).map(_.stripPrefix("spark.sql.streaming.")),
      Seq("checkpoint.fileChecksum.enabled", "checkpointFileManagerClass",
        "stateStore.rocksdb.checkStaleReusedFilesInSnapshot"))
    val usual = own.updated("spark.sql.streaming.checkpoint.fileChecksum.enabled", "true")
    expect(RequiredConf.switchedOff(usual.get).size, 2)
    expect(RequiredConf.switchedOff(_ => None), Nil)
  }

  test("the host in the socket's path is replaced") {
    expect(Settings(conf("spark.rhino.socket" -> "/run/{host}.sock")).socket("w1"), "/run/w1.sock")
  }

  test("settings become the message of the manager") {
    val message = Settings(conf("spark.rhino.replicationFactor" -> "2", "spark.rhino.minCopies" -> "3",
      "spark.rhino.durability" -> "synced")).message
    expect(message.int("replication_factor"), 2)
    expect(message.int("min_copies"), 3)
    expect(message.enumName("durability"), "DURABILITY_SYNCED")
    expect(message.enumName("below_min_copies"), "BELOW_MIN_COPIES_DEGRADED")
  }

  test("malformed values are refused with the setting, the value and what is allowed") {
    for ((name, value, allowed) <- Seq(
        ("manager", "nowhere", "host:port"),
        ("replicationFactor", "-1", "a whole number, 0 or more"),
        ("replicationFactor", "1.5", "a whole number, 0 or more"),
        ("minCopies", "3", "from 1 to replicationFactor + 1 = 2"),
        ("minCopies", "0", "from 1 to replicationFactor + 1 = 2"),
        ("belowMinCopies", "maybe", "'degraded' or 'block'"),
        ("durability", "forever", "'replicated' or 'synced'"),
        ("managerTimeout", "soon", "a number of seconds above 0"),
        ("commitTimeout", "0", "a number of seconds above 0"),
        ("prepareTimeout", "-1", "a number of seconds above 0")))
      fails[IllegalArgumentException](s"spark.rhino.$name = '$value'", allowed) {
        Settings(conf(s"spark.rhino.$name" -> value))
      }
  }

  test("an unknown setting is refused with the known ones") {
    fails[IllegalArgumentException]("spark.rhino.replicationFaktor = '1'", "spark.rhino.replicationFactor")(
      Settings(conf("spark.rhino.replicationFaktor" -> "1")))
  }

  test("the names of classes in settings are those of the classes") {
    expect(ClassNames.Plugin, classOf[RhinoPlugin].getName)
    expect(ClassNames.Provider, classOf[RhinoStateStoreProvider].getName)
    expect(ClassNames.Extensions, classOf[RhinoExtensions].getName)
    expect(ClassNames.FileSystem, classOf[RhinoFileSystem].getName)
    expect(ClassNames.AbstractFileSystem, classOf[RhinoAbstractFileSystem].getName)
    expect(classOf[RhinoStateStoreProvider].getSuperclass.getSuperclass.getName, ClassNames.SparkProvider)
  }

  test("the plugin sets what the application has left unset") {
    val application = conf(ProviderKey -> ClassNames.Provider)
    val hadoop = new Configuration(false)
    RequiredConf.complete(application, hadoop)
    RequiredConf.ofState.foreach { case (key, value) => expect(application.get(key), value) }
    expect(application.get("spark.hadoop.fs.rhino.impl"), ClassNames.FileSystem)
    expect(hadoop.get("fs.AbstractFileSystem.rhino.impl"), ClassNames.AbstractFileSystem)
  }

  test("the plugin overwrites nothing") {
    val key = "spark.sql.streaming.stateStore.maintenanceInterval"
    val application =
      conf(ProviderKey -> ClassNames.SparkProvider, key -> "9s", "spark.sql.extensions" -> "mine.A, mine.B")
    RequiredConf.complete(application, new Configuration(false))
    expect(application.get(key), "9s")
    expect(application.get("spark.sql.extensions"), s"mine.A,mine.B,${ClassNames.Extensions}")
    RequiredConf.complete(application, new Configuration(false))
    expect(application.get("spark.sql.extensions"), s"mine.A,mine.B,${ClassNames.Extensions}")
  }

  test("a task that fails is tried elsewhere, unless the application has decided or there is no elsewhere") {
    val enabled = "spark.excludeOnFailure.taskAndStage.enabled"
    def set(more: (String, String)*): Boolean = {
      val application = conf(more: _*)
      RequiredConf.complete(application, new Configuration(false))
      RequiredConf.ofExclusion.forall { case (key, value) => application.get(key, "") == value }
    }
    expect(set("spark.master" -> "spark://h:7077"), true)
    expect(set("spark.master" -> "local[2]"), false)
    expect(set("spark.master" -> "yarn", "spark.task.maxFailures" -> "3"), false)
    expect(set("spark.master" -> "yarn", enabled -> "false"), false)
    expect(set("spark.master" -> "yarn", "spark.excludeOnFailure.enabled" -> "true"), false)
  }

  test("another provider gets no settings of the state store") {
    val application = conf(ProviderKey -> "org.example.Memory")
    RequiredConf.complete(application, new Configuration(false))
    expect(application.contains(RequiredConf.Format), false)
  }

  test("settings that endanger the state are refused") {
    val good = Map(RequiredConf.Format -> "2", RequiredConf.Changelogs -> "true")
    RequiredConf.check(good.get)
    fails[IllegalArgumentException](
      s"${RequiredConf.Format} = 1: Rhino needs 2", "rhino adopt <checkpoint> --to-format 2")(
      RequiredConf.check(good.updated(RequiredConf.Format, "1").get))
    fails[IllegalArgumentException](s"${RequiredConf.Format} = unset")(
      RequiredConf.check((good - RequiredConf.Format).get))
    fails[IllegalArgumentException](s"${RequiredConf.Changelogs} = false")(
      RequiredConf.check(good.updated(RequiredConf.Changelogs, "false").get))
  }
}
