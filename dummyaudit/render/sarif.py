"""The flagged layouts as SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import quote

from dummyaudit import __version__
from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.words import count, finding_sentences, layout_name, rule_title
from dummyaudit.report import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

Level = Literal["error", "warning", "note"]

_RULES: dict[str, tuple[str, Level, str, str]] = {
    "dummyaudit/overflow-past-table": (
        "OverflowPastTable",
        "error",
        "A dummy request reads past the end of the block table.",
        "A request of a dummy batch is longer than its row of the block table, so that an unmasked attention kernel "
        "reads page ids from memory that is not the table: an illegal memory access, or garbage.",
    ),
    "dummyaudit/overflow-next-row": (
        "OverflowNextRow",
        "error",
        "A dummy request reads another request's row of the block table.",
        "A request of a dummy batch is longer than its row of the block table, so that an unmasked attention kernel "
        "reads the page ids of other requests: it is silent, and wrong.",
    ),
    "dummyaudit/over-length": (
        "OverLength",
        "warning",
        "A dummy request is longer than max_model_len.",
        "A request of a dummy batch is longer than max_model_len but stays in its row of the block table: it reads "
        "padding slots, which is illegal for kernels that size their work by max_model_len.",
    ),
    "dummyaudit/infeasible": (
        "Infeasible",
        "error",
        "The tokens of a dummy batch do not fit its requests, however they are split.",
        "num_tokens is more than num_reqs times max_model_len, so that every split makes a request that is too long: "
        "fewer tokens, more requests or a longer max_model_len help, another rule does not.",
    ),
    "dummyaudit/problem": (
        "Problem",
        "error",
        "A batch is not what it has to be.",
        "A builder fails a named check, such as that the tokens add up, or a saved batch holds page ids that are "
        "wrong.",
    ),
}
_INDEX = {rule: index for index, rule in enumerate(_RULES)}


def render(report: Report, style: Style) -> Iterator[str]:
    """A log of one run, with a line for each result."""
    head = report.head()
    run = {
        "tool": {"driver": {"name": "dummyaudit", "version": __version__, "rules": list(_descriptors())}},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "utf16CodeUnits",
        "properties": {key: head[key] for key in ("command", "settings", "built", "summary")},
    }
    yield f'{{\n "$schema": "{SCHEMA}",\n "version": "2.1.0",\n "runs": [{{\n'
    for key, value in run.items():
        yield f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)},\n"
    yield '  "results": ['
    separator = "\n   "
    for problem in report.problems:
        yield separator + json.dumps(_problem(problem), allow_nan=False)
        separator = ",\n   "
    for layout in _flagged(report):
        yield separator + json.dumps(_result(report, layout), allow_nan=False)
        separator = ",\n   "
    yield "\n  ]\n }]\n}\n"


def _descriptors() -> Iterator[dict[str, Any]]:
    for rule, (name, level, short, full) in _RULES.items():
        yield {
            "id": rule,
            "name": name,
            "shortDescription": {"text": short},
            "fullDescription": {"text": full},
            "defaultConfiguration": {"level": level},
        }


def _flagged(report: Report) -> Iterable[Layout]:
    """The flagged layouts; they need not be looked for where the report has kept them all."""
    if len(report.worst) == report.summary.overflow + report.summary.over_length:
        return report.worst
    return (layout for layout in report.layouts if layout.verdict != "fits")


def _problem(text: str) -> dict[str, Any]:
    rule = "dummyaudit/problem"
    return {"ruleId": rule, "ruleIndex": _INDEX[rule], "level": "error", "message": {"text": text}}


def _result(report: Report, layout: Layout) -> dict[str, Any]:
    rule = f"dummyaudit/{layout.verdict}{f'-{layout.reach}' if layout.reach else ''}"
    rule = rule if layout.feasible else "dummyaudit/infeasible"
    name = f"{layout.rule} {layout_name(layout)}"
    shape = f"{count(layout.num_reqs, 'request')}, {count(layout.num_tokens, 'token')}"
    level: Level = "error" if report.is_failure(layout) else "warning" if layout.live else "note"
    location: dict[str, Any] = {
        "logicalLocations": [{"name": layout.rule, "fullyQualifiedName": name, "kind": "layout"}]
    }
    if layout.location is not None:
        file, line = layout.location
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(posixpath.normpath(file.replace("\\", "/")))},
            "region": {"startLine": line},
        }
    return {
        "ruleId": rule,
        "ruleIndex": _INDEX[rule],
        "level": level,
        "message": {"text": f"{rule_title(layout.rule)}, {shape}: {finding_sentences(layout)}"},
        "locations": [location],
        "partialFingerprints": {"layout/v1": hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()},
        "properties": layout.to_dict(),
    }
