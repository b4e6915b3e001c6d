"""The ground that every process of Rhino shares: vocabulary, contract of protocol cores, journal, logs and settings."""
