"""What is known of vLLM's releases: block tables, capture sizes and the graphs that they make."""

from dummyaudit.engine.graphs import Graph
from dummyaudit.engine.releases import KNOWN_RELEASES, NEWEST_RELEASE, Release, release

__all__ = ["KNOWN_RELEASES", "NEWEST_RELEASE", "Graph", "Release", "release"]
