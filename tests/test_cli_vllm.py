from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_helpers import Result, assert_refused, call

Capture = pytest.CaptureFixture[str]

INCIDENT = ("--release", "0.26.0", "--max-model-len", "16", "--max-num-seqs", "256", "--cudagraph-mode", "FULL")

CONFIG = """\
# a server
model: some/model
max-model-len: 16
max-num-seqs: 256
compilation-config:
  cudagraph_mode: FULL
"""

MANIFEST = """\
apiVersion: v1
kind: Service
metadata: {name: unrelated}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  template:
    spec:
      containers:
      - name: server
        env: [{name: VLLM_USE_V2_MODEL_RUNNER, value: "1"}]
        command: [vllm, serve, some/model]
        args: [--max-model-len=16, --max-num-seqs, "256", -cc.cudagraph_mode=FULL]
---
apiVersion: v1
kind: Pod
metadata: {name: qwen}
spec:
  containers:
  - name: main
    command: [sh, -c]
    args: ["exec vllm serve other/model --max-model-len 4k --max-num-seqs 8"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("serve.yaml").write_text(CONFIG)
    Path("deploy").mkdir()
    Path("deploy/k8s.yaml").write_text(MANIFEST)
    return tmp_path


def vllm(capsys: Capture, *arguments: str) -> Result:
    return call(capsys, "vllm", "--device", "none", *arguments)


def document(capsys: Capture, *arguments: str) -> dict:
    result = vllm(capsys, "-f", "json", *arguments)
    assert result.status in (0, 1), result.err
    return json.loads(result.out)


def settings_of(report: dict) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["value"], one["origin"]) for one in report["cases"][0]["settings"]}


def test_incident_of_49751_fails_before_0_27_and_not_from_then_on(capsys: Capture) -> None:
    before = document(capsys, *INCIDENT, "--runner", "v2")
    flagged = [one for one in before["layouts"] if one["verdict"] == "overflow"]
    assert {one["num_tokens"] for one in flagged} == {384, 400, 416, 432, 448, 464, 480, 496}
    worst = max(flagged, key=lambda one: one["worst"]["pages"])
    assert worst["worst"] == {"request": 255, "seq_len": 241, "pages": 16, "slots_read_outside": [8, 15]}
    assert worst["phase"] == {
        "run": "capture",
        "graph": "FULL",
        "kind": "mixed",
        "runner": "v2",
        "release": "0.26.0",
    }
    assert vllm(capsys, *INCIDENT, "--runner", "v2").status == 1
    assert vllm(capsys, *INCIDENT, "--runner", "v2", "--release", "0.27.0").status == 0


def test_latent_overflow_fails_only_if_strict(capsys: Capture) -> None:
    piecewise = (*INCIDENT[:-1], "PIECEWISE", "--runner", "v2")
    assert vllm(capsys, *piecewise).status == 0
    assert vllm(capsys, *piecewise, "--strict").status == 1
    assert vllm(capsys, *piecewise, "--strict", "--exit-zero").status == 0
    assert document(capsys, *piecewise)["summary"]["overflow"] == 8


def test_pasted_command_of_the_issue_is_understood(capsys: Capture) -> None:
    command = "vllm serve some/model --max-model-len 4k --max-num-seqs 64 -cc.cudagraph_mode=FULL"
    given = (*command.split(), "-cc.cudagraph_capture_sizes+=4128", "--max-num-batched-tokens", "8192")
    report = document(capsys, "--release", "0.33.0", "--runner", "v1", "--", *given)
    said = settings_of(report)
    assert said["max_model_len"] == ("4000", "--max-model-len")
    assert said["max_num_seqs"][0] == "64"
    assert said["block_size"] == ("16", "vLLM's default")
    [layout] = [one for one in report["layouts"] if one["phase"]["run"] == "capture"]
    assert (layout["rule"], layout["num_tokens"], layout["verdict"]) == ("v1", 4128, "overflow")
    assert "258/256" in vllm(capsys, "--release", "0.33.0", "--runner", "v1", "--", *given).out
    whole = " ".join(given).replace(" -cc", " \\\n  -cc")
    pasted = document(capsys, "--release", "0.33.0", "--runner", "v1", "--", whole)
    assert pasted["layouts"] == report["layouts"]


def test_more_explicit_place_wins(capsys: Capture, here: Path) -> None:
    release = ("--release", "0.30.0", "--config", "serve.yaml")
    assert settings_of(document(capsys, *release))["max_model_len"] == ("16", "serve.yaml:3: max-model-len")
    pasted = ("--", "vllm", "serve", "m", "--max-model-len", "32")
    assert settings_of(document(capsys, *release, *pasted))["max_model_len"] == ("32", "--max-model-len")
    said = settings_of(document(capsys, *release, "--max-model-len", "64", *pasted))
    assert said["max_model_len"][0] == "64"
    assert said["max_num_seqs"] == ("256", "serve.yaml:4: max-num-seqs")


def test_config_inside_the_pasted_command_is_read(capsys: Capture, here: Path) -> None:
    said = settings_of(document(capsys, "--release", "0.30.0", "--", "vllm", "serve", "--config", "serve.yaml"))
    assert said["max_model_len"] == ("16", "serve.yaml:3: max-model-len")


def test_keys_of_the_config_and_of_the_command_merge(capsys: Capture, here: Path) -> None:
    (here / "serve.yaml").write_text("max-model-len: 4096\ncompilation-config.cudagraph_mode: FULL\n")
    command = (
        "--",
        "vllm",
        "serve",
        "m",
        "--config",
        "serve.yaml",
        "--compilation-config.cudagraph_capture_sizes+=24",
    )
    report = document(capsys, "--release", "0.33.0", *command)
    assert report["cases"][0]["capture_sizes"] == [24]
    assert settings_of(report)["cudagraph_mode"] == ("FULL", "serve.yaml:2: compilation-config.cudagraph_mode")


def test_length_of_a_local_model_is_taken_where_none_is_given(capsys: Capture, here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text('{"text_config": {"max_position_embeddings": 2048}}')
    for given in (("--model", "model"), ("--", "vllm", "serve", "model", "--max-model-len", "auto")):
        value, origin = settings_of(document(capsys, "--release", "0.30.0", *given))["max_model_len"]
        assert value == "2048"
        assert "config.json" in origin


def test_formats_point_at_the_line_at_fault(capsys: Capture, here: Path) -> None:
    config = ("--release", "0.26.0", "--runner", "v2", "--config", "serve.yaml")
    annotations = vllm(capsys, *config, "-f", "github")
    assert annotations.status == 1
    errors = [line for line in annotations.out.splitlines() if line.startswith("::error ")]
    assert errors
    assert all("file=serve.yaml,line=6::" in line for line in errors if "more flagged" not in line)
    sarif = json.loads(vllm(capsys, *config, "-f", "sarif").out)
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "serve.yaml"}, "region": {"startLine": 6}}
    rows = list(csv.DictReader(vllm(capsys, *config, "-f", "csv").out.splitlines()))
    assert {(row["location_file"], row["location_line"]) for row in rows} == {("serve.yaml", "6")}
    cases = ElementTree.fromstring(vllm(capsys, *config, "-f", "junit").out)
    assert cases.attrib["failures"] == "8"
    assert "| 496 |" in vllm(capsys, *config, "-f", "markdown").out


def test_deployments_of_a_directory_are_audited_each(capsys: Capture, here: Path) -> None:
    (here / "deploy" / "a.yaml").write_text(CONFIG)
    (here / "deploy" / "notes.txt").write_text("no deployment")
    report = document(capsys, "--release", "0.26.0", "--config", "deploy")
    cases = [(case["deployment"], case["runner"]) for case in report["cases"]]
    assert [runner for _, runner in cases] == ["v1", "v2", "v2", "v1", "v2"]
    assert len({name for name, _ in cases}) == 3
    assert report["settings"]["deployments"][0] == "a.yaml"
    failing = {one["phase"]["deployment"] for one in report["layouts"] if one["verdict"] == "overflow"}
    assert len(failing) == 2
    assert not any("qwen" in name for name in failing)
    assert {one["location"]["file"] for one in report["layouts"]} == {"deploy/a.yaml", "deploy/k8s.yaml"}
    table = vllm(capsys, "--release", "0.26.0", "--config", "deploy").out
    assert "llama" in table.split("\n\n")[0]


def test_range_of_releases_is_a_table_by_runner(capsys: Capture, here: Path) -> None:
    result = vllm(capsys, "--release", "0.25.1..0.33.0", "--config", "serve.yaml")
    assert result.status == 1
    head, *lines = result.out.split("\n\n")[0].splitlines()
    assert head.split() == ["vLLM", "v1", "v2"]
    assert [line.split()[0] for line in lines] == [
        *("0.25.1", "0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
    ]
    assert [line.split()[-1] for line in lines[2:]] == ["safe"] * 7


def test_notes_say_on_stderr_what_is_not_certain(capsys: Capture) -> None:
    newer = vllm(capsys, "--release", "0.40.0", "--max-model-len", "4096")
    assert "0.40.0 is newer than all known releases; audited as 0.33" in newer.err
    both = vllm(capsys, "--release", "0.26.0", "--max-model-len", "4096")
    assert "both are audited" in both.err
    assert vllm(capsys, "--release", "0.26.0", "--max-model-len", "4096", "--runner", "v1").err == ""
    passed = vllm(
        capsys, "-v", "--release", "0.33.0", "--", "vllm", "serve", "m", "--max-model-len", "4096", "-tp", "2"
    )
    assert "passed over: -tp" in passed.err
    left_out = vllm(capsys, "--release", "0.12.0..0.18.0", "--runner", "v2", "--max-model-len", "4096")
    assert "0.12.0 v2 left out: " in left_out.err


def test_dropped_sizes_are_named_with_their_reason(capsys: Capture) -> None:
    given = ("--release", "0.33.0", "--max-model-len", "4096", "--cudagraph-capture-sizes", "8,4128")
    result = vllm(capsys, *given)
    assert "capture size 4128 is not used: over max_num_batched_tokens 2048" in result.out
    [case] = document(capsys, *given)["cases"]
    assert (case["capture_sizes"], [one["size"] for one in case["dropped"]]) == ([8], [4128])


def test_defaults_say_whose_they_are(capsys: Capture) -> None:
    small = settings_of(document(capsys, "--release", "0.33.0", "--max-model-len", "4096"))
    large = settings_of(document(capsys, "--release", "0.33.0", "--max-model-len", "4096", "--gpu", "80gb"))
    assert small["max_num_seqs"] == ("256", "default for GPU small")
    assert large["max_num_seqs"] == ("1024", "default for GPU 80gb")


def test_warm_up_can_be_left_out(capsys: Capture) -> None:
    given = ("--release", "0.32.0", "--runner", "v1", "--max-model-len", "4096")
    runs = {one["phase"]["run"] for one in document(capsys, *given)["layouts"]}
    assert runs == {"profile", "warm-up", "capture"}
    fewer = {one["phase"]["run"] for one in document(capsys, *given, "--no-flashinfer-warmup")["layouts"]}
    assert fewer == {"profile", "capture"}


def test_cures_are_there_to_be_pasted(capsys: Capture) -> None:
    out = vllm(capsys, *INCIDENT, "--runner", "v2").out
    [line] = [line for line in out.splitlines() if "cudagraph_capture_sizes=[" in line]
    flag = line.split()[-1]
    cured = vllm(capsys, *INCIDENT, "--runner", "v2", "--", flag)
    assert cured.status == 0, cured
    assert "Cure: vLLM 0.27 or newer" in out
    assert vllm(capsys, *INCIDENT, "--runner", "v2", "--", "--max-model-len", "1").status == 1  # ours wins
    assert vllm(capsys, *INCIDENT[2:], "--release", "0.26.0", "--runner", "v2", "--max-model-len", "129").status == 0


def test_built_batches_agree(capsys: Capture) -> None:
    result = call(capsys, "vllm", "--device", "cpu", *INCIDENT, "-f", "json")
    report = json.loads(result.out)
    assert report["built"] == {"device": "cpu", "layouts": report["summary"]["layouts"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "max_model_len is not known"),
        (("--max-model-len", "auto"), "max_model_len"),
        (("--max-model-len", "-1"), "max_model_len"),
        (("--max-model-len", "0"), "max_model_len"),
        (("--max-model-len", "4", "--release", "0.10.0"), "too old"),
        (("--max-model-len", "4", "--release", "new"), "'new' is no version of vLLM"),
        (("--max-model-len", "4", "--release", ".."), "is no version of vLLM"),
        (("--max-model-len", "4", "--release", "0.33.0..0.25.0"), "reversed"),
        (("--max-model-len", "4", "--release", "installed"), "no vLLM is installed"),
        (("--max-model-len", "4", "--release", "0.12.0", "--runner", "v2"), "second runner"),
        (("--max-model-len", "4", "--cudagraph-mode", "FUL"), "unknown cudagraph_mode 'FUL'"),
        (("--max-model-len", "4", "--cudagraph-capture-sizes", "8,x"), "cudagraph_capture_sizes"),
        (("--max-model-len", "4", "--num-speculative-tokens", "-1"), "num_speculative_tokens"),
        (("--max-model-len", "4", "--block-size", "0"), "block_size"),
        (("--config", "nothing-here"), "cannot read 'nothing-here'"),
        (("--", "ls", "-la"), "does not run vLLM"),
        (("--", 'vllm serve "m'), "unterminated quote"),
        (("--", "vllm", "serve", "m", "--max-model-len", "foo"), "--max-model-len: 'foo'"),
        (("--", "vllm", "serve", "m", "--config", "nothing-here"), "nothing-here"),
    ],
)
def test_what_cannot_be_audited_is_refused(
    capsys: Capture, here: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert_refused(vllm(capsys, "--release", "0.33.0", *arguments), says)


def test_one_unreadable_deployment_of_several_leaves_no_verdict(capsys: Capture, here: Path) -> None:
    (here / "deploy" / "bad.yaml").write_text("max-model-len: [16]\n")
    assert_refused(vllm(capsys, "--release", "0.30.0", "--config", "deploy"), "bad.yaml:1")


def test_deployment_that_no_release_takes_is_refused_by_name(capsys: Capture, here: Path) -> None:
    (here / "deploy" / "bad.yaml").write_text(
        CONFIG + "decode-context-parallel-size: 3\nblock-size: 16\ndcp-kv-cache-interleave-size: 5\n"
    )
    result = vllm(capsys, "--release", "0.30.0", "--config", "deploy")
    assert_refused(result, "bad.yaml", "interleave")


def test_missing_yaml_library_is_asked_for_only_where_a_file_is_read(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert vllm(capsys, "--release", "0.33.0", "--max-model-len", "4096").status == 0
    assert_refused(vllm(capsys, "--release", "0.33.0", "--config", "serve.yaml"), "pip install PyYAML")
