from __future__ import annotations

from typing import Any

import pytest

import dummyaudit
from dummyaudit.block_table import INT32_MAX, BlockTable
from dummyaudit.errors import DeviceError, DummyAuditError, InputError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_reqs": 0}, "num_reqs must be at least 1, got 0"),
    ({"num_reqs": -3}, "num_reqs must be at least 1, got -3"),
    ({"num_reqs": 1.5}, "num_reqs must be a whole number, got 1.5"),
    ({"num_tokens": "9"}, "num_tokens must be a whole number, got '9'"),
    ({"num_reqs": True}, "num_reqs must be at least 1, got 1"),
    ({"num_tokens": 2**31}, "num_tokens 2147483648 does not fit"),
    ({"max_model_len": 0}, "max_model_len must be at least 1"),
    ({"block_size": 0}, "block_size must be at least 1"),
    ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
    ({"max_num_seqs": 3}, "num_reqs 4 is more than max_num_seqs 3"),
    ({"dcp": 0}, "dcp must be at least 1"),
    ({"interleave": 3}, "interleave 3 must divide block_size 16"),
    ({"kernel_block_size": 3}, "kernel_block_size 3 must divide block_size 16"),
    ({"token_alignment": 64}, "token_alignment must be 128, 128-floor or 0"),
    ({"rules": []}, "no rule was given"),
    ({"rules": "last"}, "rules must be a list of names, got 'last'; use ['last']"),
    ({"rules": ["lats"]}, "unknown rule 'lats'; did you mean last?"),
    ({"rules": [f"last+context:{INT32_MAX}"]}, "a seq_len does not fit"),
    ({"device": "gpu"}, "unknown device 'gpu'"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("call", [dummyaudit.grid, dummyaudit.compare])
def test_bad_setting_is_refused_by_name(call: Any, change: dict[str, Any], says: str) -> None:
    with pytest.raises(DummyAuditError) as raised:
        call(**{"num_reqs": 4, "num_tokens": 9, "max_model_len": 16, "device": "none", **change})
    assert says in str(raised.value)
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_reqs": 4, "num_tokens": 3}, "nothing to audit"),
        ({"num_reqs": []}, "num_reqs: an empty axis"),
        ({"max_model_len": []}, "max_model_len: an empty axis"),
        ({"shapes": []}, "nothing to audit"),
        ({"shapes": [(4, 3)]}, "num_reqs 4 is more than num_tokens 3"),
        ({"shapes": [(4, 9)], "num_reqs": 4}, "shapes were given along with num_reqs or num_tokens"),
        ({"shapes": [(4, 9)], "num_tokens": 9}, "shapes were given along with num_reqs or num_tokens"),
        ({"shapes": [(4, 9)], "max_num_seqs": 3}, "num_reqs 4 is more than max_num_seqs 3"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"worst": -1}, "worst must not be negative, got -1"),
        ({"shapes": [4]}, "shapes: 4 is not a pair"),
        ({"shapes": [(4,)]}, "shapes: (4,) is not a pair"),
        ({"shapes": [(4, 9.5)]}, "num_tokens must be a whole number, got 9.5"),
    ],
)
def test_grid_that_holds_nothing_to_audit_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as raised:
        dummyaudit.grid(**{"device": "none", **arguments})
    assert says in str(raised.value)


@pytest.mark.parametrize("rule", [3, None, ("even",)])
def test_rule_that_is_no_name_is_refused(rule: Any) -> None:
    with pytest.raises(DummyAuditError, match="a rule is given by its name"):
        dummyaudit.grid(rules=[rule], device="none")


def test_compare_refuses_more_requests_than_tokens() -> None:
    with pytest.raises(InputError, match=r"^num_reqs 5 is more than num_tokens 4: .*; use num_tokens 5 or more"):
        dummyaudit.compare(num_reqs=5, num_tokens=4)


def test_block_table_counts_its_rows_for_a_batch() -> None:
    with pytest.raises(InputError, match="num_reqs 5 is more than max_num_seqs 4"):
        dummyaudit.build("last", 5, 9, BlockTable(max_model_len=16, max_num_seqs=4))
    with pytest.raises(InputError, match="num_reqs 5 is more than num_tokens 4"):
        dummyaudit.build("last", 5, 4, BlockTable(max_model_len=16))


@pytest.mark.parametrize(
    ("device", "says"), [("none", "cannot build a batch on device 'none'"), ("gpu", "unknown device 'gpu'")]
)
def test_batch_needs_a_device(device: str, says: str) -> None:
    with pytest.raises(DeviceError, match=says):
        dummyaudit.build("last", 2, 5, BlockTable(max_model_len=16), device=device)
