"""Deployments of Kubernetes manifests and of whole directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dummyaudit.engine.arguments import VARIABLE
from dummyaudit.engine.manifests import Deployment, find_deployments
from dummyaudit.errors import InputError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(text: str, name: str = "f.yaml") -> list[Deployment]:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return list(find_deployments(name).deployments)


def said(deployment: Deployment) -> dict[str, Any]:
    return {name: one.value for name, one in deployment.parsed.settings.items()}


def pod(container: str, kind: str = "Pod", name: str = "p") -> str:
    """A manifest with one container, whose lines are given."""
    body = "".join(f"    {line}\n" for line in container.strip("\n").splitlines())
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: c\n{body}"


SERVE = "command: [vllm, serve, m]\nargs: [--max-model-len, '16']"
EXPECTED = {"model": "m", "max_model_len": 16}


@pytest.mark.parametrize(
    "container",
    [
        SERVE,
        "command: [vllm]\nargs: [serve, m, --max-model-len=16]",
        "args: [vllm, serve, m, --max-model-len=16]",
        "command: [python3, -m, vllm.entrypoints.openai.api_server]\nargs: [--model=m, --max-model-len=16]",
        "command: [sh, -c]\nargs: ['vllm serve m --max-model-len 16']",
        "command: [/bin/bash, -c, 'set -e; exec vllm serve m --max-model-len 16']",
        "command: [sh, -c]\nargs:\n- |\n  # start\n  vllm serve m \\\n    --max-model-len 16",
        "command: [sh, -c]\nargs:\n- >-\n  vllm serve m\n  --max-model-len 16",
        "image: vllm/vllm-openai:latest\nargs: [--model, m, --max-model-len=16]",
        "image: mirror/vllm-openai\nargs: [serve, m, --max-model-len=16]",
    ],
)
def test_container_runs_vllm_however_it_is_written(container: str) -> None:
    [deployment] = found(pod(container))
    assert said(deployment) == EXPECTED
    assert (deployment.name, deployment.file, deployment.line) == ("Pod/p container c", "f.yaml", 6)


@pytest.mark.parametrize(
    "container",
    [
        "image: nginx\nargs: [--port, '80']",
        "command: [sleep, infinity]",
        "image: vllm/vllm-openai\nargs: [--port, '80']",
        "command: [vllm, bench, serve]\nargs: [--model, m]",
        "image: vllm/vllm-openai",
    ],
)
def test_container_that_runs_something_else_is_none(container: str) -> None:
    with pytest.raises(InputError, match=r"f\.yaml: no container in it runs vLLM"):
        found(pod(container))


DEPLOYMENT = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: llama}}
spec:
  template:
    spec:
      initContainers:
      - {{name: fetch, command: [vllm, serve, other]}}
      containers:
      - {{name: proxy, image: envoy}}
      - name: server
        command: [vllm, serve, m, --max-model-len=16]
"""


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_template_of_any_kind_of_object_is_looked_into(kind: str) -> None:
    [deployment] = found(DEPLOYMENT.format(kind=kind))
    assert said(deployment) == EXPECTED
    assert deployment.name == f"{kind}/llama container server"
    assert deployment.line == 11


def test_leader_and_worker_of_a_set_are_told_apart() -> None:
    names = [
        deployment.name
        for deployment in found(
            """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {generateName: big-}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec: {containers: [{name: a, command: [vllm, serve, m]}]}
    workerTemplate:
      spec: {containers: [{command: [vllm, serve, n]}]}
"""
        )
    ]
    assert names == ["LeaderWorkerSet/big- leader container a", "LeaderWorkerSet/big- worker container ?"]


def test_every_document_and_every_item_of_a_list_is_read() -> None:
    text = pod(SERVE, name="a") + "---\n---\n" + pod("image: nginx", name="b") + "---\n" + pod(SERVE, name="c")
    items = "".join(
        f"- {line}" if i == 0 else f"  {line}" for i, line in enumerate(pod(SERVE, name="d").splitlines(True))
    )
    text += f"---\napiVersion: v1\nkind: List\nitems:\n{items}"
    assert [deployment.name for deployment in found(text)] == [f"Pod/{name} container c" for name in "acd"]


def test_two_commands_of_one_container_are_two_deployments() -> None:
    two = found(pod("command: [sh, -c, 'vllm serve a --port 1 & vllm serve b --port 2']"))
    assert [(one.name[-9:], said(one)["model"]) for one in two] == [("command 1", "a"), ("command 2", "b")]


def test_variable_of_the_container_chooses_the_runner() -> None:
    [deployment] = found(pod(f"env:\n- {{name: X, value: y}}\n- name: {VARIABLE}\n  value: '0'\n{SERVE}"))
    one = deployment.parsed.settings[VARIABLE]
    assert (one.value, one.origin.line, one.origin.source) == (False, 10, "environment")


@pytest.mark.parametrize(
    ("container", "line", "flag"),
    [
        ("command: [vllm, serve]\nargs:\n- m\n- --max-model-len=16", 10, "--max-model-len"),
        ("command: [sh, -c]\nargs:\n- |\n  vllm serve m \\\n    --max-model-len 16", 11, "--max-model-len"),
        ("command: [sh, -c]\nargs:\n- >-\n  vllm serve m\n  --max-model-len 16", 11, "--max-model-len"),
        ('command: [sh, -c]\nargs:\n- "vllm serve m\n  --max-model-len 16"', 10, "--max-model-len"),
    ],
)
def test_setting_knows_its_line_in_any_style_of_text(container: str, line: int, flag: str) -> None:
    [deployment] = found(pod(container))
    assert str(deployment.parsed.settings["max_model_len"].origin) == f"f.yaml:{line}: {flag}"


@pytest.mark.parametrize(
    ("container", "line", "says"),
    [
        ("command: vllm serve m", 7, "command is no list, as Kubernetes wants it"),
        ("command: [vllm, serve, [m]]", 7, "a list among the texts of command"),
        ("command: [vllm, serve, m]\nargs:\n- --max-model-len=x", 9, "--max-model-len: 'x' is not a whole number"),
        ('command: [sh, -c, "vllm serve \'m"]', 7, "an unterminated quote"),
        (f"{SERVE}\nenv:\n- name: {VARIABLE}\n  valueFrom: {{configMapKeyRef: x}}", 10, "cannot be known"),
        (f"{SERVE}\nenv: [x]", 9, "a single value where a mapping belongs: a variable"),
        (f"{SERVE}\nenv:\n- name: {VARIABLE}\n  value: maybe", 11, "'maybe' is not a number"),
    ],
)
def test_fault_of_a_manifest_names_its_line(container: str, line: int, says: str) -> None:
    with pytest.raises(InputError) as raised:
        found(pod(container))
    assert str(raised.value).startswith(f"f.yaml:{line}: ")
    assert says in str(raised.value)


def test_config_of_vllm_is_named_by_its_file() -> None:
    [deployment] = found("model: m\nmax-model-len: 16\n", "some/serve.yaml")
    assert (deployment.name, deployment.file, deployment.line) == ("serve.yaml", "some/serve.yaml", 1)
    assert said(deployment) == EXPECTED


def test_empty_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"f\.yaml: empty; give a config of vLLM, or a manifest"):
        found("# nothing\n")


def write(name: str, text: str | bytes) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_directory_is_all_deployments_below_it_and_says_what_it_left_out() -> None:
    write("d/b/serve.yml", "max-model-len: 16\n")
    write("d/a.yaml", pod(SERVE))
    write("d/model.yaml", "model: m\ntensor-parallel-size: 2\n")
    write("d/.git/hidden.yaml", "max-model-len: 16\n")
    write("d/notes.txt", "max-model-len: 16\n")
    write("d/other.yaml", "a: 1\n")
    write("d/docs.yaml", "model: about vllm\n")
    write("d/under.yaml", "max_num_seqs: 8\n")
    write("d/list.yaml", "- vllm\n")
    write("d/chart.yaml", "args: {{ .Values.vllm }}\nmax-model-len: {{ x }}\n")
    write("d/values.yaml", pod("command: [vllm, serve, '{{ model }}', --max-model-len, '{{ len }}']"))
    write("d/binary.yaml", b"\xff\xfevllm")
    write("d/broken.yaml", "what is vllm: [\n")
    result = find_deployments("d")
    assert [deployment.file for deployment in result.deployments] == [
        "d/a.yaml",
        "d/model.yaml",
        "d/under.yaml",
        "d/b/serve.yml",
    ]
    assert result.passed_over == (
        "d/binary.yaml: d/binary.yaml:1: not a text file",
        "d/broken.yaml: a template, or no YAML that is read here",
        "d/chart.yaml: a template",
        "d/docs.yaml: no vLLM server",
        "d/list.yaml: no vLLM server",
        "d/other.yaml: nothing of vLLM",
        "d/values.yaml: a template",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [("max-model-len: [", "d/f.yaml:1: not YAML"), ("max-model-len: x", "d/f.yaml:1: max-model-len: 'x'")],
)
def test_broken_deployment_of_a_directory_is_never_left_out(text: str, says: str) -> None:
    write("d/good.yaml", "max-model-len: 16\n")
    write("d/f.yaml", text)
    with pytest.raises(InputError) as raised:
        find_deployments("d")
    assert says in str(raised.value)


def test_directory_without_deployments_is_refused() -> None:
    write("d/other.yaml", "a: 1\n")
    with pytest.raises(InputError, match=r"d: no YAML file below it describes a vLLM server \(1 passed over\)"):
        find_deployments("d")
