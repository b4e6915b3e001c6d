package rhino.spark

import org.apache.hadoop.fs.Path

import rhino.spark.store.{StateFileName, StatePath, StoreId}

class StoreSuite extends Suite {
  private val store = StoreId("job", 3, 7, "default")

  test("a store has its name in its root and in messages") {
    expect(store.toString, "job/3/7/default")
    expect(store.root, "rhino:///job/3/7/default")
    expect(StoreId.parse(new Path(store.root)), Some((store, "")))
  }

  test("a path below the root of a store is a name in it") {
    expect(StoreId.parse(new Path("rhino:///job/3/7/default/SSTs/1-a.sst")), Some((store, "SSTs/1-a.sst")))
    expect(StoreId.parse(new Path("rhino:///job/3/7/default/5_x.zip")), Some((store, "5_x.zip")))
  }

  test("a path without operator and partition names no store") {
    expect(StoreId.parse(new Path("rhino:///job/3")), None)
    expect(StoreId.parse(new Path("rhino:///job/three/7/default/5_x.zip")), None)
    expect(StoreId.parse(new Path("rhino:///")), None)
  }

  test("names of changelogs and snapshots have version and checkpoint id") {
    expect(StateFileName.version("12_a-b.changelog"), Some((12L, "a-b")))
    expect(StateFileName.version("12_a-b.zip"), Some((12L, "a-b")))
  }

  test("files of format 1, temporary files and data files have no version") {
    for (name <- Seq("12.changelog", "12.zip", ".12_a.zip.1.tmp", "SSTs/12_a.sst", "12_.zip", "x12_a.zip"))
      expect(StateFileName.version(name), None)
  }

  test("checksum files are told from files with crc in their names") {
    expect(StateFileName.isChecksum("12_a.zip.crc"), true)
    expect(StateFileName.isChecksum(".12_a.changelog.crc.8d2f.tmp"), true)
    expect(StateFileName.isChecksum("12_crc.zip"), false)
  }

  test("a state path in a checkpoint is split into its parts") {
    expect(StatePath.parse(new Path("rhino://file/ckpt/q/state/0/4/12_a.zip")),
      Some(StatePath("/ckpt/q", 0, 4, "default", "12_a.zip")))
    expect(StatePath.parse(new Path("rhino://file/ckpt/q/state/0/4/left-keyToNumValues/SSTs/1.sst")),
      Some(StatePath("/ckpt/q", 0, 4, "left-keyToNumValues", "SSTs/1.sst")))
    expect(StatePath.parse(new Path("rhino://file/ckpt/q/state/0/4")), Some(StatePath("/ckpt/q", 0, 4, "default", "")))
  }

  test("the last state folder of a path is the one of the query") {
    expect(StatePath.parse(new Path("rhino://file/state/1/2/q/state/0/4/12_a.zip")),
      Some(StatePath("/state/1/2/q", 0, 4, "default", "12_a.zip")))
  }

  test("everything else in a checkpoint is no state") {
    val others = Seq("offsets/3", "metadata", "state/0/_metadata/metadata", "state/0/4/_schema/x/y",
      "state/0/_x/12_a.zip", "state/0/4/unknown/12_a.zip", "state")
    for (path <- others)
      expect(StatePath.parse(new Path(s"rhino://file/ckpt/q/$path")), None)
  }

  test("a number that no operator or partition has names no state") {
    for (path <- Seq("state/1/99999999999", "state/99999999999999999999/1/12_a.zip", "state/1/\u0663/12_a.zip"))
      expect(StatePath.parse(new Path(s"rhino://file/ckpt/q/$path")), None)
    expect(StoreId.parse(new Path("rhino:///job/3/99999999999/default/5_x.zip")), None)
    expect(StateFileName.version("99999999999999999999_a.zip"), None)
    expect(StateFileName.version("999999999999999999_a.zip"), Some(999999999999999999L -> "a"))
  }

  test("an operator with one store has the default one, a join has four") {
    expect(StatePath.storeNames(1), Seq("default"))
    expect(StatePath.storeNames(4).length, 4)
    expect(StatePath.storeNames(4).head, "left-keyToNumValues")
  }
}
