from __future__ import annotations

import pickle

import pytest

import dummyaudit
from dummyaudit.errors import DeviceError, DisagreementError, DummyAuditError, InputError, RuleError

KINDS = [InputError, RuleError, DeviceError, DisagreementError]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_caught_as_the_public_base(kind: type[DummyAuditError]) -> None:
    with pytest.raises(dummyaudit.DummyAuditError, match=r"^no such file; write another$") as raised:
        raise kind("no such file", "write another")
    assert (raised.value.message, raised.value.hint) == ("no such file", "write another")


def test_error_without_hint_is_its_message() -> None:
    assert str(InputError("no such file")) == "no such file"
    assert InputError("no such file").hint == ""


@pytest.mark.parametrize("kind", KINDS)
def test_error_of_another_process_keeps_its_hint(kind: type[DummyAuditError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what is wrong", "what to try")))
    assert type(error) is kind
    assert (error.message, error.hint, str(error)) == ("what is wrong", "what to try", "what is wrong; what to try")
