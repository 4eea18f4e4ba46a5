"""The flags of `vllm serve`: those that are understood, and how many words the others take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from dummyaudit.engine import values
from dummyaudit.engine.said import Origin, Value

Takes = Literal["none", "one", "some", "optional"]

VALUES: dict[str, tuple[str, Callable[[Origin, str], Value]]] = {
    "--model": ("model", lambda _, text: text),
    "--max-model-len": ("max_model_len", values.length),
    "--max-num-seqs": ("max_num_seqs", values.count),
    "--max-num-batched-tokens": ("max_num_batched_tokens", values.size),
    "--block-size": ("block_size", values.count),
    "--max-cudagraph-capture-size": ("max_cudagraph_capture_size", values.count),
    "--decode-context-parallel-size": ("decode_context_parallel_size", values.count),
    "-dcp": ("decode_context_parallel_size", values.count),
    "--dcp-kv-cache-interleave-size": ("dcp_kv_cache_interleave_size", values.count),
    "--cp-kv-cache-interleave-size": ("cp_kv_cache_interleave_size", values.count),
    "--spec-tokens": ("num_speculative_tokens", values.count),
    "--num-speculative-tokens": ("num_speculative_tokens", values.count),
    "--optimization-level": ("optimization_level", values.level),
    "--performance-mode": ("performance_mode", values.performance_mode),
}
"""Flags of one value: the setting, and what reads it."""

LISTS = {
    "--cudagraph-capture-sizes": "cudagraph_capture_sizes",
    "--cuda-graph-sizes": "cuda_graph_sizes",
}
"""Flags of several sizes."""

SWITCHES = {
    f"--{no}{name.replace('_', '-')}": (name, not no)
    for name in ("enforce_eager", "enable_lora", "enable_chunked_prefill")
    for no in ("", "no-")
}
"""Flags of no value."""

OFF_BY_DEFAULT = ("--enforce-eager", "--enable-lora")
"""Those among them that change nothing when they are turned off."""

CONFIGS: dict[str, Literal["compilation", "speculative"]] = {
    "--compilation-config": "compilation",
    "-cc": "compilation",
    "-O": "compilation",  # until 0.12; from there on it is a level
    "--speculative-config": "speculative",
    "-sc": "speculative",
}
"""Flags whose value is a JSON object, which can be given key by key."""

SPECULATIVE = ("--spec-method", "--spec-model")
"""Flags that turn speculative decoding on and do not say how many tokens it drafts."""

UNDERSTOOD = frozenset((*VALUES, *LISTS, *SWITCHES, *CONFIGS, "--config"))

_SWITCH = re.compile(
    r"--(?:(?:no|enable|disable|use|trust|skip|return|allow|fully-sharded|data-parallel-(?:hybrid|external)|log-error)-.+"
    r"|help|headless|grpc|exclude-tools-when-tool-choice-none|cohere-is-reasoning-model|tokens-only|dcp-q-replicate"
    r"|sleep-mode-offload-cudagraph|numa-bind|data-parallel-multi-port-external-lb|ray-workers-use-nsight"
    r"|kv-sharing-fast-prefill|swa-bounded-replay|language-model-only|mm-encoder-only|interleave-mm-strings"
    r"|mm-device-do-normalize|specialize-active-lora|kv-cache-metrics|cudagraph-metrics|jit-monitor-verbose"
    r"|long-prefill-token-threshold-adaptive|scheduler-reserve-full-isl|async-scheduling|aggregate-engine-logging"
    r"|fail-on-environ-validation|calculate-kv-scales)|-h|-ep|-dp[hem]"
)
_LIST = re.compile(
    r"--(?:lora-modules|prompt-adapters|api-key|allowed-media-domains|served-model-name|logits-processors"
    r"|sleep-preserve-parameter-names|ignore-patterns|numa-bind-nodes|numa-bind-cpus|lora-target-modules"
    r"|kv-cache-dtype-skip-layers|cpu-offload-params|offload-params|collect-detailed-traces)"
)
_ONE = "--disable-access-log-for-endpoints"


def takes(flag: str) -> Takes:
    """How many words a flag takes that is not understood; one, if nothing else is known of it."""
    if _LIST.fullmatch(flag):
        return "some"
    if flag == "--hf-token":
        return "optional"
    return "none" if _SWITCH.fullmatch(flag) and flag != _ONE else "one"


def canonical(name: str) -> str:
    """A flag with dashes for underscores, up to its first dot."""
    head, dot, keys = name.partition(".")
    return (head.replace("_", "-") if head.startswith("--") else head) + dot + keys


def split(text: str, following: str) -> tuple[str, str | None]:
    """A flag's name with dashes, and the value that is written together with it.

    Args:
        text: the word.
        following: the next word, if it is no flag: -O has two meanings.
    """
    if text == "-O":
        return "-cc" if following.lstrip().startswith("{") else "--optimization-level", None
    if text.startswith("-O"):
        value = text[2:].removeprefix("=")
        return "-cc" if value.startswith("{") else "--optimization-level", value
    name, equals, value = text.partition("=")
    return canonical(name), value if equals else None


def complete(flag: str) -> list[str]:
    """The understood flags that a flag can be short for; itself, if it is understood or short for none."""
    if flag in UNDERSTOOD or not flag.startswith("--"):
        return [flag]
    return sorted(known for known in UNDERSTOOD if known.startswith(flag)) or [flag]


def runs_together(flag: str) -> str | None:
    """The short flag whose value is written right behind it, as in -dcp2, which vLLM does not read."""
    short = (known for known in UNDERSTOOD if not known.startswith("--"))
    return next((known for known in short if flag not in UNDERSTOOD and re.match(rf"{known}[\d{{]", flag)), None)


def is_understood(text: str) -> bool:
    """Whether a word is an understood flag, with or without a value or a key."""
    return text.startswith("-O") or canonical(text.partition("=")[0]).partition(".")[0] in UNDERSTOOD
