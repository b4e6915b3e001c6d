package rhino.spark

import org.apache.hadoop.fs.Path

import rhino.spark.settings.{ClassNames, IntegrationMode}

class IntegrationModeSuite extends Suite {
  import ClassNames.{Provider, SparkProvider}

  private val (onRhino, elsewhere) = (new Path("rhino://file/ckpt/q"), new Path("/ckpt/q"))

  private def mode(provider: String, checkpoint: Path, wanted: String) =
    IntegrationMode.of(provider, checkpoint, wanted)

  test("the provider and the checkpoint location are two ways to be served") {
    expect(mode(Provider, elsewhere, Provider), IntegrationMode("provider", served = true))
    expect(mode(SparkProvider, onRhino, SparkProvider), IntegrationMode("checkpoint", served = true))
  }

  test("both at once are refused") {
    val both = mode(Provider, onRhino, Provider)
    expect(both.served, false)
    expect(both.refusal.exists(_.contains("choose one")), true)
    fails[IllegalArgumentException]("rhino://file/ckpt/q", "choose one")(IntegrationMode.refuseBoth(onRhino))
    IntegrationMode.refuseBoth(elsewhere)
  }

  test("a checkpoint on rhino serves Spark's provider only") {
    val refusal = mode("org.example.Memory", onRhino, "org.example.Memory").refusal
    expect(refusal.exists(text => text.contains("org.example.Memory") && text.contains("new checkpoint")), true)
  }

  test("a query that Spark's provider has begun cannot go on with Rhino's") {
    val refusal = mode(SparkProvider, elsewhere, Provider).refusal
    expect(refusal.exists(_.contains("rhino adopt")), true)
  }

  test("a query without Rhino runs as it is") {
    val without = mode(SparkProvider, elsewhere, SparkProvider)
    expect((without.served, without.refusal), (false, None))
  }
}
