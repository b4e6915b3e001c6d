from tests.chaos.__main__ import reasons

FAILURE = """nbq8: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 641, in _call_proxy
py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Some.frame(Some.scala:1)
Caused by: java.io.IOException: the cause
\t... 12 more
"""


def test_the_frames_of_both_languages_are_left_out_and_the_cause_is_not() -> None:
    lines = reasons(FAILURE)
    assert lines[-1] == "Caused by: java.io.IOException: the cause"
    assert len(lines) == 4


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    lines = reasons("\n".join(f"line {number}" for number in range(100)))
    assert (len(lines), lines[0], lines[-1]) == (20, "line 0", "line 99")
