package rhino.spark

import rhino.spark.modify.Looks

/** When the folder of records is listed. */
class LooksSuite extends Suite {
  private class Folder {
    var (changed, now, looked) = (0L, 10000L, 0)
    val looks = new Looks(() => changed, () => now)

    /** How often it has been listed after each of these moments. */
    def at(moments: Long*)(done: => Boolean = true): Seq[Int] = moments.map { moment =>
      now = moment
      looks.ifDue { looked += 1; done }
      looked
    }
  }

  test("a folder that is not there is never listed") {
    expect(new Folder().at(10000, 20000)(), Seq(0, 0))
  }

  test("a change is seen at once, and a folder without changes is listed once in a second") {
    val folder = new Folder
    folder.changed = 9000
    expect(folder.at(10000, 10020, 10999, 11000, 11020)(), Seq(1, 1, 1, 2, 2))
    folder.changed = 11030
    expect(folder.at(11040, 11140, 11200)(), Seq(3, 3, 3))
  }

  test("a change of the same time as the last one is seen") {
    val folder = new Folder
    folder.changed = 10000
    expect(folder.at(10000, 10050, 10099, 10100, 10101)(), Seq(1, 2, 3, 3, 3))
  }

  test("what could not be dealt with is looked at again") {
    val folder = new Folder
    folder.changed = 9000
    expect(folder.at(10000, 10020)(false), Seq(1, 2))
    fails[IllegalStateException]("disk") { folder.looks.ifDue(throw new IllegalStateException("disk")) }
    expect(folder.at(10030, 10040)(), Seq(3, 3))
  }
}
