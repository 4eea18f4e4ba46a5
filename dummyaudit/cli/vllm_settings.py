"""From the options of `dummyaudit vllm` to deployments and releases."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from dummyaudit.axes import parse_axis, parse_number
from dummyaudit.deployments import Deployment, parse_releases
from dummyaudit.engine.arguments import Parsed, combine
from dummyaudit.engine.command_line import parse_command
from dummyaudit.engine.config_file import read_config
from dummyaudit.engine.manifests import find_deployments
from dummyaudit.engine.releases import NEWEST_RELEASE, Release
from dummyaudit.engine.said import Origin, Said, Settings, Value
from dummyaudit.environment import vllm_version
from dummyaudit.errors import InputError

_FLAGS = {"decode_context_parallel_size": "--dcp", "dcp_kv_cache_interleave_size": "--interleave"}
"""Options of ours that are not named as the setting is."""


def collect(
    given: Mapping[str, str | bool | None], command: Sequence[str], configs: Sequence[str], verbose: bool
) -> list[Deployment]:
    """The deployments that options, a pasted command and files describe, the more explicit one winning.

    Raises:
        InputError: something cannot be read, or a deployment has no max_model_len.
    """
    options = _options(given)
    pasted: Settings = {}
    if command:
        parsed = parse_command(command[0] if len(command) == 1 else command)
        pasted = _with_config(parsed, verbose)
    if not configs:
        return [Deployment("", {**pasted, **options})]
    files = list(map(find_deployments, configs))
    if verbose:
        for passed_over in (name for file in files for name in file.passed_over):
            sys.stderr.write(f"dummyaudit: passed over: {passed_over}\n")
    found = [deployment for file in files for deployment in file.deployments]
    return [
        Deployment(
            deployment.name if len(found) > 1 else "",
            {**_with_config(deployment.parsed, verbose), **pasted, **options},
        )
        for deployment in found
    ]


def find_releases(text: str | None) -> tuple[Release, ...]:
    """The releases of --release; if not given the installed one, else the newest known.

    Raises:
        InputError: it is malformed, or there is no installed one.
    """
    if text is not None and text != "installed":
        return parse_releases(text)
    installed = vllm_version()
    if installed is not None:
        return parse_releases(installed)
    if text == "installed":
        raise InputError("no vLLM is installed in this environment", f"give --release {NEWEST_RELEASE.version}")
    return (NEWEST_RELEASE,)


def _options(given: Mapping[str, str | bool | None]) -> Settings:
    said: Settings = {}
    for name, text in given.items():
        if text is not None:
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            said[name] = Said(_value(name, text), Origin("option", flag))
    return said


def _value(name: str, text: str | bool) -> Value:
    if isinstance(text, bool) or name == "model":
        return text
    if name == "cudagraph_mode":
        return text.upper()
    if name == "cudagraph_capture_sizes":
        return tuple(parse_axis(name, text))
    if name == "max_model_len" and text in ("auto", "-1"):
        return "auto"
    if name == "num_speculative_tokens" and text == "0":
        return 0
    return parse_number(name, text)


def _with_config(parsed: Parsed, verbose: bool) -> Settings:
    """The settings of a command, together with those of the config file that it names."""
    if parsed.config is not None:
        parsed = combine(read_config(str(parsed.config.value)), parsed)
    if verbose and parsed.passed_over:
        sys.stderr.write(f"dummyaudit: passed over: {' '.join(parsed.passed_over)}\n")
    return parsed.settings
