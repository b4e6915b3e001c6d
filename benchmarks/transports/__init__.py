"""Encrypted transports for push streams beside plain TCP: gRPC over mTLS, TLS sockets, AES-GCM records."""

QUICK = ("--bytes 134217728 --rounds 2 --commits 100",)
LOWER_IS_BETTER = ("cpu_s_per_gb", "idle_p50_ms", "beside_p50_ms")
HIGHER_IS_BETTER = ("mb_per_s",)
