"""The examples, run as their readers would run them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from cli_helpers import Result, environment, start
from cli_helpers import shell as run_shell

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

OLD_RULE = """
def split_tokens(num_reqs, num_tokens):
    query_len, rest = divmod(num_tokens, num_reqs)
    return [query_len] * (num_reqs - 1) + [query_len + rest]
"""

BROKEN_RULE = """
def split_tokens(num_reqs, num_tokens):
    return [0] * num_reqs
"""


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def workflow_steps() -> list[dict[str, Any]]:
    """The steps of the workflow that run a command, but for the one that installs."""
    (job,) = load("examples/workflow.yml")["jobs"].values()
    return [step for step in job["steps"] if "pip install" not in step.get("run", "pip install")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the custom rule, and a `bin` with the command `dummyaudit`."""
    shutil.copy(EXAMPLES / "custom_rule.py", tmp_path)
    command = tmp_path / "bin" / "dummyaudit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dummyaudit "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run_command(checkout: Path, script: str) -> Result:
    """Runs a script as a step of GitHub Actions is run."""
    path = f"{checkout / 'bin'}:{environment()['PATH']}"
    summary = str(checkout / "step-summary")
    return run_shell(f"set -e\n{script}", cwd=checkout, PATH=path, GITHUB_STEP_SUMMARY=summary)


def run_workflow(checkout: Path) -> list[Result]:
    """Runs the steps in order; after one that failed, those that run always."""
    (checkout / "step-summary").write_text("what an earlier command said\n")
    results: list[Result] = []
    for step in workflow_steps():
        failed = any(result.status for result in results)
        if not failed or step.get("if") == "always()":
            results.append(run_command(checkout, step["run"]))
    return results


def test_workflow_passes_where_the_rule_fits(checkout: Path) -> None:
    results = run_workflow(checkout)

    assert [result.status for result in results] == [0, 0], results
    assert "::error" not in results[0].out
    said = (checkout / "step-summary").read_text()
    assert said.startswith("what an earlier command said\n")
    assert "`custom_rule:split_tokens`: never overflows" in said
    assert ElementTree.parse(checkout / "dummyaudit.xml").getroot().get("failures") == "0"


def test_workflow_that_fails_loses_no_annotation_summary_or_test_report(checkout: Path) -> None:
    (checkout / "custom_rule.py").write_text(OLD_RULE)

    audit, summary = run_workflow(checkout)

    assert (audit.status, summary.status) == (1, 0)
    worst, *_ = audit.out.splitlines()
    assert worst.startswith("::error title=custom_rule%3Asplit_tokens")
    assert "256 requests" in worst
    assert "496 tokens" in worst
    said = (checkout / "step-summary").read_text()
    assert "what an earlier command said" in said
    assert "overflow" in said
    assert int(ElementTree.parse(checkout / "dummyaudit.xml").getroot().get("failures", "0")) > 0


def test_workflow_without_a_verdict_shows_no_second_error(checkout: Path) -> None:
    (checkout / "custom_rule.py").write_text(BROKEN_RULE)

    audit, summary = run_workflow(checkout)

    assert (audit.status, summary.status) == (2, 0)
    assert "custom_rule:split_tokens" in audit.err
    assert (checkout / "step-summary").read_text() == "what an earlier command said\n"
    assert not (checkout / "dummyaudit.xml").exists()


def test_workflow_keeps_the_test_report_of_a_job_that_failed() -> None:
    (job,) = load("examples/workflow.yml")["jobs"].values()
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]

    assert upload["if"] == "always()"
    assert f"--report junit={upload['with']['path']}" in workflow_steps()[0]["run"]


def test_workflow_installs_what_grid_needs_and_no_torch() -> None:
    (job,) = load("examples/workflow.yml")["jobs"].values()
    (install,) = [step["run"] for step in job["steps"] if "pip install" in step.get("run", "")]

    assert install == "pip install typer rich numpy PyYAML && pip install --no-deps dummyaudit"
    # These are enough, since nothing else is imported; PyYAML only where files are read.
    imported = "import sys; from dummyaudit.cli.main import run; run(sys.argv[1:]); print({*sys.modules})"
    arguments = ("grid", "--max-model-len", "16", "--device", "none", "--format", "github")
    result = run_shell(f'"$1" -c "{imported}" {shlex.join(arguments)}')
    assert result.status == 0, result
    names = result.out.splitlines()[-1]
    assert "'numpy'" in names
    for missing in ("torch", "yaml", "matplotlib"):
        assert f"'{missing}'" not in names


def hook_command(hook: dict[str, Any]) -> str:
    """The command line that pre-commit makes of a hook that gets no file names."""
    assert hook["pass_filenames"] is False
    return shlex.join([*shlex.split(hook["entry"]), *hook.get("args", [])])


def local_hook() -> dict[str, Any]:
    (repo,) = load("examples/pre-commit-config.yaml")["repos"]
    (hook,) = repo["hooks"]
    assert repo["repo"] == "local"
    return dict(hook)


def test_local_hook_lets_a_rule_that_fits_be_committed(checkout: Path) -> None:
    result = run_command(checkout, hook_command(local_hook()))

    assert result.status == 0, result
    assert "custom_rule:split_tokens: never overflows" in result.out


def test_local_hook_stops_a_rule_that_overflows(checkout: Path) -> None:
    (checkout / "custom_rule.py").write_text(OLD_RULE)

    assert run_command(checkout, hook_command(local_hook())).status == 1


def test_repository_is_a_hook_whose_defaults_pass(checkout: Path) -> None:
    (hook,) = load(".pre-commit-hooks.yaml")

    assert hook["id"] == "dummyaudit"
    assert run_command(checkout, hook_command(hook)).status == 0


def test_repository_hook_takes_the_users_arguments(checkout: Path) -> None:
    (hook,) = load(".pre-commit-hooks.yaml")

    assert run_command(checkout, hook_command({**hook, "args": ["--max-model-len", "16"]})).status == 1


@pytest.mark.parametrize(
    ("num_reqs", "num_tokens", "expected"),
    [(1, 7, [7]), (4, 4, [1, 1, 1, 1]), (3, 8, [3, 3, 2]), (4, 9, [3, 3, 3]), (256, 496, [2] * 248)],
)
def test_custom_rule_splits_otherwise(num_reqs: int, num_tokens: int, expected: list[int]) -> None:
    split_tokens = vars(load_module("custom_rule.py"))["split_tokens"]

    assert split_tokens(num_reqs, num_tokens) == expected


def load_module(name: str) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_incident_tells_another_story() -> None:
    result = run_shell('"$1" examples/incident_49751.py', cwd=ROOT)

    assert (result.status, result.err) == (0, "")
    for fact in (
        "last, before the fix: overflow; request 255 has seq_len 241, 16 of 8 pages",
        "even, after the fix: fits; request 255 has seq_len 2, 1 of 8 pages",
        # 255 requests of one page, and the 8 slots that the last one's row has.
        "last, before the fix: a kernel reads 263 ids of its requests' own rows, 0 of other rows, 8 that are no",
        "even, after the fix: a kernel reads 256 ids of its requests' own rows, 0 of other rows, 0 that are no",
        "16 pages of 8 slots, reads slots 8 to 15 past the end of the table",
        "max_model_len 128: 16 pages for 8 slots, overflow",
        "max_model_len 256: 16 pages for 16 slots, fits",
        "last fits from max_model_len 129 on",
    ):
        assert fact in result.out


def test_every_example_is_described() -> None:
    described = (EXAMPLES / "README.md").read_text()
    files = [path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"]

    assert len(files) >= 4
    for name in files:
        assert f"[`{name}`]({name})" in described


def test_commands_of_the_examples_page_and_the_custom_rule_run(tmp_path: Path) -> None:
    command = "dummyaudit grid --rule custom_rule:split_tokens --max-model-len 16,4096"

    for name in ("README.md", "custom_rule.py"):
        assert command in (EXAMPLES / name).read_text()
    result = start(*shlex.split(command)[1:], "--device", "none", cwd=EXAMPLES)
    assert result.status == 0, result


def test_deployments_workflow_points_at_the_line_at_fault(checkout: Path) -> None:
    shutil.copytree(EXAMPLES / "deploy", checkout / "deploy")
    (checkout / "step-summary").touch()
    (job,) = load("examples/deployments-workflow.yml")["jobs"].values()
    audit, summary = (step["run"] for step in job["steps"] if "pip install" not in step.get("run", "pip install"))

    failed = run_command(checkout, audit)

    assert failed.status == 1, failed
    lines = (checkout / "deploy" / "llama.yaml").read_text().splitlines()
    line = next(i for i, text in enumerate(lines, start=1) if "capture_sizes" in text)
    assert f"file=deploy/llama.yaml,line={line}::OVERFLOW past-table: request 63 has seq_len 4128" in failed.out
    assert run_command(checkout, summary).status == 0
    assert "4128" in (checkout / "step-summary").read_text()
    (checkout / "deploy" / "llama.yaml").unlink()
    assert run_command(checkout, audit).status == 0


def test_pytest_example_passes(checkout: Path) -> None:
    done = run_command(checkout, f"{shlex.quote(sys.executable)} -m pytest -q {EXAMPLES / 'test_my_engine.py'}")
    assert done.status == 0, done
