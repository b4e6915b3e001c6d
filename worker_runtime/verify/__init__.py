"""Independent verification of replicas: opens them as a database. Runs beside the sidecar and changes nothing."""
