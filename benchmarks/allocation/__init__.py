QUICK = ("--rounds 3 --scale 0.5",)
LOWER_IS_BETTER = ("with",)
