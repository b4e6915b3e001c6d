"""The end of files: pins, retention, removal; and recovery at the start."""
