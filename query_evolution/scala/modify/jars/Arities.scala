package rhino.spark.modify.jars

/** Spark calls a function of n arguments by Scala's interface of that number. */
private[modify] object Arities {
  val Max = 22 // of Scala's functions, and of Spark's for Java

  private type A = AnyRef // one for each argument

  def of(arity: Int, its: CalledFunction): AnyRef = arity match {
    case 0 => () => its.called.invokeExact()
    case 1 => (a: A) => its.called.invokeExact(a)
    case 2 => (a: A, b: A) => its.called.invokeExact(a, b)
    case 3 => (a: A, b: A, c: A) => its.called.invokeExact(a, b, c)
    case 4 => (a: A, b: A, c: A, d: A) => its.called.invokeExact(a, b, c, d)
    case 5 => (a: A, b: A, c: A, d: A, e: A) => its.called.invokeExact(a, b, c, d, e)
    case 6 => (a: A, b: A, c: A, d: A, e: A, f: A) => its.called.invokeExact(a, b, c, d, e, f)
    case 7 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A) => its.called.invokeExact(a, b, c, d, e, f, g)
    case 8 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A) => its.called.invokeExact(a, b, c, d, e, f, g, h)
    case 9 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i)
    case 10 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j)
    case 11 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k)
    case 12 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l)
    case 13 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m)
    case 14 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n)
    case 15 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    case 16 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    case 17 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
    case 18 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A, r: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)
    case 19 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A, r: A, s: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
    case 20 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A, r: A, s: A, t: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)
    case 21 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A, r: A, s: A, t: A, u: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u)
    case 22 => (a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A, i: A, j: A, k: A, l: A, m: A, n: A,
        o: A, p: A, q: A, r: A, s: A, t: A, u: A, v: A) =>
        its.called.invokeExact(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v)
    case more => throw new IllegalArgumentException(s"$more arguments: Spark's functions have up to $Max")
  }
}
