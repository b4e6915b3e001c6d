"""A second opinion on replicas: opens them as a database. Runs beside the sidecar and changes nothing."""
