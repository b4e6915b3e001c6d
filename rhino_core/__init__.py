"""The common ground of all processes of Rhino: vocabulary, contract of protocol cores, journal, logs and settings."""
