"""Where results go: stdout, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from cli_helpers import COMMAND, FITS, OVERFLOWS, assert_refused, call, environment, shell, start

from dummyaudit import render
from dummyaudit.cli import output
from dummyaudit.render import FORMATS

Capture = pytest.CaptureFixture[str]

ESCAPE = "\x1b["


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_output_takes_the_result_off_stdout(capsys: Capture, here: Path) -> None:
    printed = call(capsys, *OVERFLOWS, "-f", "json")
    written = call(capsys, *OVERFLOWS, "-f", "json", "-o", "out.json")
    assert (written.status, written.out, written.err) == (1, "", "")
    assert Path("out.json").read_text(encoding="utf-8") == printed.out
    assert names(here) == ["out.json"]


def test_reports_come_on_top_of_stdout(capsys: Capture, here: Path) -> None:
    reports = [text for form in FORMATS for text in ("--report", f"{form}=a={form}")]
    result = call(capsys, *OVERFLOWS, "-f", "csv", *reports)
    assert names(here) == sorted(f"a={form}" for form in FORMATS)
    assert result.status == 1
    assert result.out == Path("a=csv").read_bytes().decode()
    for form in FORMATS:
        assert call(capsys, *OVERFLOWS, "-f", form).out == Path(f"a={form}").read_bytes().decode()


def test_dash_is_stdout(capsys: Capture, here: Path) -> None:
    assert call(capsys, *OVERFLOWS, "-o", "-") == call(capsys, *OVERFLOWS)
    assert names(here) == []


@pytest.mark.parametrize(
    "report", ["json", "json=", "=file", "xml=file", "JSON=file", "json:file", "", "=", " json=file", "json=-"]
)
def test_report_that_is_not_format_and_file_is_refused(capsys: Capture, here: Path, report: str) -> None:
    assert_refused(call(capsys, *FITS, "--report", report), f"--report {report!r}")
    assert names(here) == []


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("a", "./a"), ("a", "{here}/a"), ("a", "link"), ("link", "../{name}/a")]
)
def test_two_results_for_one_file_are_refused(capsys: Capture, here: Path, first: str, second: str) -> None:
    Path("link").symlink_to("a")
    first, second = (text.format(here=here, name=here.name) for text in (first, second))
    assert_refused(call(capsys, *FITS, "--report", f"json={first}", "--report", f"csv={second}"), "same file")
    assert_refused(call(capsys, *FITS, "-o", first, "--report", f"csv={second}"), "same file")
    assert names(here) == ["link"]


UNWRITABLE = [
    "missing/file",
    ".",
    "",
    "folder",
    "folder/",
    "new/",
    "file/",
    "file/x",
    "loop",
    "n" * 256,
    "/proc/version",
    "/proc/new",
]
if os.geteuid():
    UNWRITABLE += ["read-only", "locked/file"]


@pytest.mark.parametrize("path", UNWRITABLE, ids=lambda path: path[:20])
def test_file_that_cannot_be_written_is_refused_before_the_audit(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    Path("folder").mkdir()
    Path("locked").mkdir(mode=0o555)
    Path("file").write_text("old")
    Path("read-only").write_text("old")
    Path("read-only").chmod(0o444)
    Path("loop").symlink_to("loop")
    before = names(here)
    monkeypatch.setattr("dummyaudit.api.compare", None)
    assert_refused(call(capsys, *FITS, "-o", path), f"cannot write {path!r}: ")
    if path:
        assert_refused(call(capsys, *FITS, "-o", "a", "--report", f"json={path}"), f"cannot write {path!r}: ")
    assert names(here) == before
    assert Path("file").read_text() == Path("read-only").read_text() == "old"
    assert names(here / "folder") == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_file_keeps_its_mode(capsys: Capture, here: Path, mode: int) -> None:
    Path("out").write_text("old")
    Path("out").chmod(mode)
    call(capsys, *FITS, "-f", "json", "-o", "out")
    assert stat.S_IMODE(Path("out").stat().st_mode) == mode
    assert json.loads(Path("out").read_text())["summary"]["ok"]


def test_new_file_has_the_mode_that_the_umask_leaves(capsys: Capture, here: Path) -> None:
    before = os.umask(0o027)
    try:
        call(capsys, *FITS, "-o", "out")
    finally:
        left = os.umask(before)
    assert stat.S_IMODE(Path("out").stat().st_mode) == 0o640
    assert left == 0o027


def test_link_stays_and_its_target_is_written(capsys: Capture, here: Path) -> None:
    Path("there").mkdir()
    Path("link").symlink_to("there/target")
    for _ in range(2):
        call(capsys, *FITS, "-f", "json", "-o", "link")
        assert Path("link").is_symlink()
        assert json.loads(Path("there/target").read_text())["summary"]["ok"]
    assert names(here) == ["link", "there"]
    assert names(here / "there") == ["target"]


@pytest.mark.parametrize("name", ["n" * 255, "a b", "-x", "ä", "[num_reqs]", "a\nb", "x.json.gz"])
def test_any_file_name_will_do(capsys: Capture, here: Path, name: str) -> None:
    assert call(capsys, *FITS, f"--output={name}").status == 0
    assert names(here) == [name]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "/dev/full"),
        ("--report", "json=/dev/full"),
        ("-o", "kept", "--report", "json=/dev/full"),
        ("--report", "json=/dev/full", "-o", "kept"),
        ("--report", "csv=new", "--report", "json=/dev/full", "--report", "table=kept"),
    ],
)
def test_full_device_leaves_the_other_files_as_they_were(
    capsys: Capture, here: Path, arguments: tuple[str, ...]
) -> None:
    Path("kept").write_text("old")
    assert_refused(call(capsys, *FITS, *arguments), "cannot write '/dev/full': No space left on device")
    assert names(here) == ["kept"]
    assert Path("kept").read_text() == "old"


def test_full_disk_leaves_the_old_file_and_names_it(here: Path) -> None:
    Path("kept").write_text("old")
    large = ("grid", "--device", "none", "-f", "json", "-o", "kept", "--report", "table=new")
    assert_refused(
        shell('ulimit -f 1; exec "$@"', *large, COVERAGE_PROCESS_CONFIG=""), "cannot write 'kept': File too large"
    )
    assert names(here) == ["kept"]
    assert Path("kept").read_text() == "old"


def test_failing_stdout_leaves_no_file(here: Path) -> None:
    assert_refused(shell('"$@" >/dev/full', *FITS, "--report", "json=new"), "cannot write the result")
    assert names(here) == []


def test_closed_stdout_pipe_keeps_the_files(here: Path) -> None:
    result = shell('"$@" | true; exit ${PIPESTATUS[0]}', *OVERFLOWS, "--report", "json=new")
    assert (result.status, result.err) == (1, "")
    assert json.loads(Path("new").read_text())["summary"]["overflow"] == 1


def test_failing_audit_leaves_the_old_file(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(**_: object) -> None:
        raise RuntimeError

    Path("kept").write_text("old")
    monkeypatch.setattr("dummyaudit.api.compare", crash)
    assert call(capsys, *FITS, "-o", "kept", "--report", "json=new").status == 2
    assert names(here) == ["kept"]
    assert Path("kept").read_text() == "old"


def test_failing_renderer_leaves_no_file(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(*_: object) -> object:
        yield "half"
        raise RuntimeError

    monkeypatch.setattr(output, "render", half)
    assert call(capsys, *FITS, "-o", "new").status == 2
    assert names(here) == []


def test_device_and_pipe_are_written_and_not_replaced(here: Path) -> None:
    os.mkfifo("fifo")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("fifo").read_text()))
    reader.start()
    assert start(*FITS, "-f", "json", "-o", "fifo", "--report", "json=/dev/null").status == 0
    reader.join(timeout=30)
    assert json.loads(read[0])["summary"]["ok"]
    assert stat.S_ISFIFO(Path("fifo").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_shell_can_pass_a_pipe_as_a_file(here: Path) -> None:
    result = shell('exec 3>&1; "$@" --report json=>(cat >&3) >/dev/null', *OVERFLOWS)
    assert (result.status, result.err) == (1, "")
    assert json.loads(result.out)["summary"]["overflow"] == 1
    piped = shell('"$@" -f json -o /dev/stdout | cat', *OVERFLOWS)
    assert json.loads(piped.out)["summary"]["overflow"] == 1


def test_reader_of_a_report_that_goes_away_keeps_the_verdict(here: Path) -> None:
    large = ("grid", "--device", "none", "--report", "csv=new", "-o", "table")
    result = shell('"$@" --report json=>(true)', *large)
    assert (result.status, result.err) == (1, "")
    assert names(here) == ["new", "table"]


def on_terminal(*arguments: str, width: int = 0, **changes: str) -> str:
    """What the command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm", **({"COLUMNS": str(width)} if width else {}), **changes),
        )
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 2**16)
            except OSError:
                break
            if not piece:
                break
            text += piece
        process.wait(timeout=30)
    finally:
        os.close(ours)
    return text.decode()


def test_colours_are_for_a_terminal_that_wants_them() -> None:
    coloured = on_terminal(*OVERFLOWS)
    assert ESCAPE in coloured
    assert ESCAPE not in on_terminal(*OVERFLOWS, NO_COLOR="1")
    assert ESCAPE not in on_terminal(*OVERFLOWS, NO_COLOR="1", FORCE_COLOR="1")
    assert ESCAPE not in on_terminal(*OVERFLOWS, "-f", "json")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured).replace("\r\n", "\n")
    assert plain == start(*OVERFLOWS).out


@pytest.mark.parametrize(
    ("changes", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": "", "FORCE_COLOR": "1"}, True),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_in_a_pipe_are_forced_or_none(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], coloured: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    assert (ESCAPE in call(capsys, *OVERFLOWS).out) == coloured
    assert ESCAPE not in call(capsys, *OVERFLOWS, "-f", "markdown").out


def test_files_are_never_coloured(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    call(capsys, *OVERFLOWS, "--report", "table=new")
    assert ESCAPE not in Path("new").read_text()


WIDE = ("grid", "--max-model-len", "16", "--device", "none")


def width_of(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", ["40", "80", "100"])
def test_columns_are_kept_to(capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (WIDE, OVERFLOWS):
        assert width_of(call(capsys, *arguments).out) <= int(columns)


@pytest.mark.parametrize("columns", ["", "0", "-1", "abc", "1"])
def test_senseless_columns_do_no_harm(columns: str) -> None:
    result = start(*WIDE, COLUMNS=columns)
    assert (result.status, result.err) == (1, "")
    if columns != "1":
        assert result.out == start(*WIDE).out


def test_pipe_folds_nothing_that_a_wide_terminal_would_not(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = call(capsys, *WIDE).out
    monkeypatch.setenv("COLUMNS", "500")
    assert piped == call(capsys, *WIDE).out
    assert 80 < width_of(piped) <= output.PIPE_WIDTH


def test_width_of_the_terminal_is_kept_to() -> None:
    assert width_of(on_terminal(*WIDE, width=80, NO_COLOR="1")) <= 80


@pytest.mark.parametrize(
    "changes", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_locale_without_unicode_is_survived(tmp_path: Path, changes: dict[str, str]) -> None:
    (tmp_path / "rule_ä.py").write_text(
        "def split(num_reqs, num_tokens):\n    return [num_tokens]\n", encoding="utf-8"
    )
    for form in FORMATS:
        result = start(*FITS, "-r", "rule_ä:split", "-f", form, cwd=tmp_path, **changes)
        assert (result.status, result.err) == (1, "")
        assert result.out.isascii()
    error = start(*FITS, "-r", "rule_ä:missing", cwd=tmp_path, **changes)
    assert_refused(error)
    assert error.err.isascii()


def test_files_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    (tmp_path / "rule_ä.py").write_text(
        "def split(num_reqs, num_tokens):\n    return [num_tokens]\n", encoding="utf-8"
    )
    start(*FITS, "-r", "rule_ä:split", "--report", "csv=new", cwd=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert "rule_ä:split" in (tmp_path / "new").read_text(encoding="utf-8")


def test_every_format_can_be_rendered() -> None:
    assert set(render.FORMATS) == {"table", "json", "csv", "markdown", "junit", "github", "sarif"}
