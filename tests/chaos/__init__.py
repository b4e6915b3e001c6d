"""Random faults on a real cluster under real queries; the output is compared at the end."""
