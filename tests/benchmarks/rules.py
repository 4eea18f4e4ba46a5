"""The rules that are measured."""

RULES = ["last", "even", "v1", "v1-mixed", "single", "even-first", "uniform:4"]
