QUICK = ("--rounds 3 --scale 0.5",)
