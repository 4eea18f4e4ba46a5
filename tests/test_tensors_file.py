"""Saved tensors: what is read, and hostile files, none of which may run, blow memory up or end in a traceback."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, shell

from dummyaudit import tensors_file
from dummyaudit.errors import InputError
from dummyaudit.tensors_file import LIMIT, read_tensors

WANTED = ("a", "b", "n")
A, B = np.arange(3, dtype=np.int32), np.arange(6, dtype=np.int64).reshape(2, 3)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def safetensors(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(dtype: str, shape: list[Any], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def save(kind: str) -> str:
    """A file with a [3] int32, b [2, 3] int64, the number n, and a tensor that nobody wants."""
    name = f"f.{kind}"
    tensors = {"a": A, "b": B, "n": np.int64(7), "other": np.ones(2)}
    match kind:
        case "npz":
            np.savez(name, **tensors)
        case "json":
            Path(name).write_text(json.dumps({key: value.tolist() for key, value in tensors.items()}))
        case "safetensors":
            header = {
                "__metadata__": {"x": "y"},
                "a": entry("I32", [3], 0, 12),
                "b": entry("I64", [2, 3], 12, 60),
                "n": entry("I64", [], 60, 68),
                "other": entry("F64", [2], 68, 84),
            }
            data = A.tobytes() + B.tobytes() + np.int64(7).tobytes() + np.ones(2).tobytes()
            Path(name).write_bytes(safetensors(header, data))
        case _:
            torch.save({"a": torch.tensor(A), "b": torch.tensor(B), "n": 7, "other": torch.ones(2)}, name)
    return name


@pytest.mark.parametrize("kind", ["npz", "json", "safetensors", "pt", "pth"])
def test_wanted_tensors_come_out_as_they_were_saved(kind: str) -> None:
    found, names = read_tensors(save(kind), WANTED)
    assert {name: value.tolist() for name, value in found.items()} == {"a": A.tolist(), "b": B.tolist(), "n": 7}
    assert sorted(names) == ["a", "b", "n", "other"]


def test_file_of_the_safetensors_package_is_read() -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"a": A, "b": B, "u": A.astype(np.uint8)}, "f.safetensors")
    found, _ = read_tensors("f.safetensors", ("a", "b", "u"))
    assert [found[name].tolist() for name in "abu"] == [A.tolist(), B.tolist(), A.tolist()]


def test_order_and_version_of_npy_do_not_matter() -> None:
    np.savez("f.npz", a=np.asfortranarray(B), b=B[:, ::2].astype(">i2"))
    found, _ = read_tensors("f.npz", WANTED)
    assert (found["a"].tolist(), found["b"].tolist()) == (B.tolist(), B[:, ::2].tolist())
    stream = io.BytesIO()
    np.lib.format.write_array(stream, A, version=(2, 0))
    with zipfile.ZipFile("v2.npz", "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
    assert read_tensors("v2.npz", WANTED)[0]["a"].tolist() == A.tolist()


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo run > ran",)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def npz(member: bytes, name: str = "a") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", member)
    return stream.getvalue()


def header_of(shape: str, dtype: str = "<i8") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def torch_file(content: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def archive_of(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return stream.getvalue()


HOSTILE: list[tuple[str, bytes, str]] = [
    ("f.txt", b"", "is of no kind that can be read; its name has to end in .npz, .json"),
    ("f.npz", b"", "cannot read 'f.npz' as .npz: File is not a zip file"),
    ("f.npz", b"PK\x03\x04" + b"\0" * 50, "as .npz"),
    ("f.npz", npz(npy(header_of("(3,)"), b"\0" * 23)), "says it has shape [3], but the file ends before"),
    ("f.npz", npz(npy(header_of("(99999999999,)"))), "of shape [99999999999] takes 745 GiB"),
    ("f.npz", npz(npy(header_of("(-1,)"))), "has no shape: [-1]"),
    ("f.npz", npz(npy(header_of("(3,)", "|O"), b"\0" * 24)), "tensor 'a' is object, not whole numbers"),
    ("f.npz", npz(npy(header_of("(3,)", "<f4"), b"\0" * 24)), "tensor 'a' is float32, not whole numbers"),
    ("f.npz", npz(npy(header_of("(3,)", "<i3"))), "as .npz"),
    ("f.npz", npz(npy("{'descr': __import__('os').system('echo > ran')}")), "as .npz"),
    ("f.npz", npz(npy(header_of("(3,)"), version=b"\x03\x00")), "is in version 3 of NumPy's format"),
    ("f.npz", npz(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"), "has a header of 2147483647 bytes"),
    ("f.npz", npz(b"not an array at all"), "as .npz"),
    ("f.json", b"", "as .json"),
    ("f.json", b"[1, 2]", "holds no JSON object; write"),
    ("f.json", b"[" * 200_000, "as .json"),
    ("f.json", b'{"a": [1, NaN]}', "NaN is no number of tokens or pages"),
    ("f.json", b'{"a": [1, 2.5]}', "tensor 'a' is of type float64, not whole numbers"),
    ("f.json", b'{"a": ["x"]}', "not whole numbers"),
    ("f.json", b'{"a": [true]}', "tensor 'a' is of type bool"),
    ("f.json", b'{"a": [[1], [1, 2]]}', "has rows of different lengths"),
    ("f.json", b'{"a": [' + b"9" * 5000 + b"]}", "as .json"),
    ("f.json", b'{"a": [' + b"9" * 50 + b"]}", "not whole numbers"),
    ("f.json", b"\xff\xfe", "as .json"),
    ("f.safetensors", b"", "is it damaged?"),
    ("f.safetensors", safetensors({}, size=2**60), "has a header of 1152921504606846976 bytes"),
    ("f.safetensors", safetensors([1]), "has a header that is no JSON object"),
    ("f.safetensors", safetensors(b"{x"), "as .safetensors"),
    ("f.safetensors", safetensors({"a": 1}), "as .safetensors"),
    ("f.safetensors", safetensors({"a": entry("F32", [1], 0, 4)}, b"\0" * 4), "tensor 'a' is F32, not whole numbers"),
    (
        "f.safetensors",
        safetensors({"a": entry("I32", [2], 0, 4)}, b"\0" * 4),
        "does not lie in the file as it should",
    ),
    ("f.safetensors", safetensors({"a": entry("I32", [2], 4, 12)}, b"\0" * 8), "does not lie in the file"),
    ("f.safetensors", safetensors({"a": entry("I32", [-2], 0, 8)}, b"\0" * 8), "has no shape: [-2]"),
    ("f.safetensors", safetensors({"a": entry("I32", [2.5], 0, 8)}, b"\0" * 8), "has no shape"),
    ("f.safetensors", safetensors({"a": entry("I64", [2**40], 0, 2**43)}), "takes 8.19e+03 GiB"),
    ("f.pt", b"", "is not in the format of torch.save since 1.6"),
    ("f.pt", pickle.dumps(Evil()), "is not in the format of torch.save"),
    ("f.pt", torch_file(Evil()), "holds a pickle that wants posix.system"),
    ("f.pt", torch_file([torch.tensor(A)]), "holds list, not a dict of tensors"),
    ("f.pt", torch_file({"a": torch.ones(2)}), "tensor 'a' is float32, not whole numbers"),
    ("f.pt", torch_file({"a": torch.ones(2, dtype=torch.bool)}), "tensor 'a' is bool"),
    ("f.pt", torch_file({"a": torch.zeros(1, dtype=torch.int64).expand(2**40)}), "takes 8.19e+03 GiB"),
    ("f.pt", torch_file({"a": "text"}), "not whole numbers"),
    ("f.pt", archive_of(data_pkl=b"x" * 10, more_pkl=b""), "holds 2 pickles, not one"),
    ("f.pt", archive_of(data_pkl=b"x" * (2**20 + 1)), "holds a pickle of 1048577 bytes"),
    ("f.pt", archive_of(zipfile.ZIP_DEFLATED, data_pkl=b"."), "is compressed, which torch.save does not do"),
    ("f.pt", archive_of(data_pkl=b"\x80\x02."), "as .pt"),
    ("f.pt", archive_of(data_pkl=b"garbage"), "as .pt"),
    ("f.pt", torch_file({"a": torch.tensor(A)})[:-40], "f.pt"),
]


@pytest.mark.parametrize(
    ("name", "content", "says"), HOSTILE, ids=[f"{name}-{says[:50]}" for name, _, says in HOSTILE]
)
def test_hostile_file_is_refused_in_one_line_and_never_run(name: str, content: bytes, says: str) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_tensors(name, WANTED)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    assert not Path("ran").exists()


def test_what_is_no_file_or_not_there_is_refused() -> None:
    Path("d.npz").mkdir()
    os.mkfifo("f.pt")
    for name, says in (
        ("d.npz", "not a file"),
        ("f.pt", "not a file"),
        ("no.npz", "No such file"),
        ("/dev/zero", "kind"),
    ):
        with pytest.raises(InputError, match=says):
            read_tensors(name, WANTED)


def test_json_is_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors_file, "JSON_LIMIT", 10)
    Path("f.json").write_text('{"a": [1, 2]}')
    with pytest.raises(InputError, match="has 13 bytes, too many for JSON"):
        read_tensors("f.json", WANTED)


def bomb() -> bytes:
    """Few bytes that unpack to more than their header says."""
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        member.write(npy(header_of(f"({LIMIT // 8 - 1},)")))
        for _ in range(40):
            member.write(b"\0" * 2**23)
    return zeros.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("f.npz", npz(npy(header_of("(99999999999,)")), "seq_lens"), "takes 745 GiB"),
        ("f.safetensors", safetensors({"seq_lens": entry("I64", [2**40], 0, 2**43)}), "GiB"),
        ("f.json", b'{"seq_lens": ' + b"[" * 500_000, "as .json"),
        ("f.pt", torch_file({"seq_lens": torch.zeros(1, dtype=torch.int64).expand(2**40)}), "GiB"),
    ],
    ids=["npz", "safetensors", "json", "pt"],
)
def test_memory_is_bounded_whatever_a_file_says(name: str, content: bytes, says: str) -> None:
    Path(name).write_bytes(content)
    limited = 'ulimit -v 6000000; exec "$@"'
    assert_refused(shell(limited, "inspect", name, "--block-size", "16"), says)


def test_archive_that_unpacks_without_end_is_read_no_further_than_its_shape() -> None:
    Path("f.npz").write_bytes(bomb())
    found, _ = read_tensors("f.npz", WANTED)
    assert found["a"].nbytes == LIMIT - 8
    assert not found["a"].any()
