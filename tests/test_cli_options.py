"""Values of options: every bad one is refused in one line, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import FITS, OVERFLOWS, assert_refused, call, shell, start

Capture = pytest.CaptureFixture[str]

AXES = ("--num-reqs", "--num-tokens", "--max-model-len", "--block-size")
NUMBERS = ("--max-num-seqs", "--kernel-block-size", "--dcp", "--interleave")

NO_SIZES = [
    "0",
    "-1",
    "+1",
    "1.5",
    "16.0",
    "1e3",
    "0x10",
    "1_000",
    "",
    " ",
    "x1",
    "x",
    "k",
    "4kk",
    "4Ki",
    "4g",
    "1 2",
    "nan",
    "inf",
    "None",
    "१६",
    "²",
    "2147483648",
    "2097152K",
    "2148m",
    str(2**63),
    str(2**64),
    str(10**400),
    "9" * 5000,
    "9" * 4295 + "M",
]
NO_AXES = [
    "1:",
    ":4",
    ":",
    "1::2",
    "1:4:",
    "1:8:0",
    "1:8:-1",
    "1:8:1.5",
    "1:8:x",
    "1:8:x0",
    "1:8:x1",
    "1:8:2x",
    "1:2:3:4",
]
NO_AXES += [
    "1,,2",
    "1,",
    ",1",
    ",",
    "1;2",
    "1-8",
    "1..8",
    "8:4",
    "2:1:x2",
    "1,8:4",
    "16777217,1:16777216",
    "0:4",
    "1:2147483648",
]
NO_NUMBERS = ["1,2", "1:4", "16,"]


def short(value: str) -> str:
    return repr(value) if len(value) < 30 else f"{len(value)} digits"


def grid_with(option: str, value: str) -> list[str]:
    given = {"--num-reqs": "4", "--num-tokens": "8", "--max-model-len": "16", "--device": "none", option: value}
    return ["grid", *(text for pair in given.items() for text in pair)]


@pytest.mark.parametrize("value", NO_SIZES, ids=short)
def test_what_is_no_size_is_refused_by_every_option(capsys: Capture, value: str) -> None:
    for option in AXES + NUMBERS:
        name = option[2:].replace("-", "_")
        assert_refused(call(capsys, *grid_with(option, value)), name)


@pytest.mark.parametrize("value", NO_AXES)
def test_malformed_or_reversed_axis_is_refused(capsys: Capture, value: str) -> None:
    for option in AXES:
        assert_refused(call(capsys, *grid_with(option, value)), option[2:].replace("-", "_"))


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_axis_is_refused_where_one_number_is_wanted(capsys: Capture, value: str) -> None:
    for option in NUMBERS:
        assert_refused(call(capsys, *grid_with(option, value)), option[2:].replace("-", "_"))
    for option in AXES[:2]:
        arguments = ["compare", "--num-reqs", "4", "--num-tokens", "8", "--device", "none", option, value]
        assert_refused(call(capsys, *arguments), option[2:].replace("-", "_"))


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ("1k", "1000"),
        ("1K", "1024"),
        ("2m", "2000000"),
        ("1M", "1048576"),
        (" 16 ", "16"),
        ("016", "16"),
        ("8:24:8", "8,16,24"),
        ("8:25:8", "8,16,24"),
        ("1:8:x2", "1,2,4,8"),
        ("1:9:x3,2", "1,2,3,9"),
        ("16,16,8", "8,16"),
        ("5:5", "5"),
        ("2147483647", str(2**31 - 1)),
    ],
)
def test_axis_expression_means_its_values(capsys: Capture, value: str, same: str) -> None:
    first, second = (call(capsys, *grid_with("--max-model-len", text), "-f", "json") for text in (value, same))
    assert first.status in (0, 1), first.err
    assert first == second
    lengths = sorted({int(text) for text in same.split(",")})
    assert f'"max_model_len": {lengths}' in first.out


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("evne", "did you mean even?"),
        ("las", "did you mean last?"),
        ("v1_mixed", "did you mean v1-mixed?"),
        ("even_first", "did you mean even-first?"),
        ("EVEN", "unknown rule 'EVEN'"),
        ("zzz", "known are last, even"),
        ("", "unknown rule ''"),
        ("even+qury", "did you mean query?"),
        ("even+", "unknown fill ''"),
        ("+query", "unknown rule"),
        ("even+zzz", "known are query, total"),
        ("even+query+total", "unknown rule"),
        ("uniform", "uniform"),
        ("uniform:", "uniform"),
        ("uniform:0", "uniform"),
        ("uniform:-1", "uniform"),
        ("uniform:1.5", "uniform"),
        ("uniform:x", "uniform"),
        ("uniform:1:2", "uniform"),
        ("uniform:2147483648", "int32"),
        ("even+context", "context"),
        ("even+context:", "context"),
        ("even+context:0", "context"),
        ("even+context:1,2", "context"),
        ("even+context:2147483648", "int32"),
        ("even+context:2147483647", "int32"),
        ("even+constant:x", "constant"),
        ("even+query:1", "unknown fill 'query:1'"),
        ("even+max-model-len:1", "unknown fill"),
    ],
)
def test_unknown_rule_or_bad_argument_is_refused_with_what_to_try(capsys: Capture, rule: str, says: str) -> None:
    assert_refused(call(capsys, *grid_with("--rule", rule)), says)
    assert_refused(call(capsys, *FITS, "--rule", rule, "--exit-zero"), says)


@pytest.mark.parametrize(
    "rule", ["uniform:1k", "even+context:2K", "last+constant:16", "mixed+max-model-len", "old", "single+plus-one"]
)
def test_rule_with_a_good_argument_is_taken(capsys: Capture, rule: str) -> None:
    assert call(capsys, *grid_with("--rule", rule)).status in (0, 1)


def test_alias_is_the_rule_and_counts_once(capsys: Capture) -> None:
    twice = call(capsys, *grid_with("--rule", "old"), "--rule", "last", "--rule", "last+query", "-f", "json")
    assert '"rules": ["last"]' in twice.out


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("gpu", "unknown device 'gpu'"),
        ("", "unknown device ''"),
        ("CPU", "unknown device 'CPU'"),
        ("cpu:0", "unknown device 'cpu:0'"),
        ("mps", "unknown device 'mps'"),
        ("cuda:", "unknown device 'cuda:'"),
        ("cuda:x", "unknown device 'cuda:x'"),
        ("cuda:-1", "unknown device 'cuda:-1'"),
        ("cuda:0:0", "unknown device 'cuda:0:0'"),
        ("cuda:1000", "cuda:1000"),
        ("cuda:" + "9" * 5000, "unknown device"),
    ],
    ids=lambda text: text[:30],
)
def test_device_that_is_not_there_is_refused(capsys: Capture, device: str, says: str) -> None:
    assert_refused(call(capsys, *FITS, "--device", device), says)


def test_cuda_without_cuda_is_refused() -> None:
    assert_refused(start(*FITS, "--device", "cuda", CUDA_VISIBLE_DEVICES=""), "device cuda: torch", "use cpu")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compare", "--num-reqs", "9", "--num-tokens", "8"), "num_reqs 9 is more than num_tokens 8"),
        ((*FITS, "--max-num-seqs", "255"), "use max_num_seqs 256 or more"),
        (("grid", "--num-reqs", "1,300", "--num-tokens", "300", "--max-num-seqs", "299"), "use max_num_seqs 300"),
        ((*FITS, "--kernel-block-size", "32"), "kernel_block_size 32 must divide block_size 16"),
        ((*FITS, "--kernel-block-size", "3"), "kernel_block_size 3 must divide block_size 16"),
        (
            ("grid", "--block-size", "16,48", "--kernel-block-size", "16", "--interleave", "32"),
            "interleave 32 must divide",
        ),
        (
            ("grid", "--block-size", "16,24", "--kernel-block-size", "16"),
            "kernel_block_size 16 must divide block_size 24",
        ),
        (("grid", "--num-reqs", "9", "--num-tokens", "8"), "nothing to audit"),
        (("grid", "--num-reqs", "100:200", "--num-tokens", "1:99"), "nothing to audit"),
        (("grid", "--num-reqs", "1000"), "nothing to audit"),
        (("grid", "--shapes", "x.csv", "--num-reqs", "1"), "x.csv"),
        ((*FITS, "--rule", "even+context:2147483646"), "int32"),
        ((*FITS, "--rule", "even+plus-one", "--num-reqs", "1", "--num-tokens", str(2**31 - 1)), "int32"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(capsys: Capture, arguments: tuple[str, ...], says: str) -> None:
    assert_refused(call(capsys, *arguments, "--device", "none"), says)
    assert_refused(call(capsys, *arguments, "--device", "none", "--exit-zero", "-f", "json"), says)


def test_shapes_go_with_no_axis(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "shapes.csv"
    file.write_text("num_reqs,num_tokens\n1,2\n")
    for option in ("--num-reqs", "--num-tokens"):
        assert_refused(call(capsys, "grid", "--shapes", str(file), option, "4"), "give one or the other")


@pytest.mark.parametrize(
    "arguments",
    [
        (*OVERFLOWS, "--num-reqs", "0"),
        (*OVERFLOWS, "--rule", "evne"),
        (*OVERFLOWS, "--device", "gpu"),
        (*OVERFLOWS, "--max-num-seqs", "1"),
        ("grid", "--shapes", "no-such-file"),
        ("grid", "--frobnicate"),
    ],
)
def test_nothing_is_written_where_there_is_no_verdict(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").write_text("old")
    assert_refused(call(capsys, *arguments, "-o", "new", "--report", "json=kept", "--report", "table=also-new"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


@pytest.mark.parametrize("option", ["--num-reqs", "--max-model-len", "--block-size"])
def test_axis_that_has_to_be_listed_is_refused_before_memory_runs_out(option: str) -> None:
    limited = 'ulimit -v 8000000; exec "$@"'
    assert_refused(shell(limited, *grid_with(option, "1:2147483647")), option[2:].replace("-", "_"))
