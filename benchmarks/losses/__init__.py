"""The losses of every kind of process, one after another, while a query runs."""

QUICK = ("--rounds 1 --only worker --pause-s 3",)
LOWER_IS_BETTER = ("longest_s",)
