from __future__ import annotations

from render_cases import small_grid

from dummyaudit.render.cells import merge_cells


def test_merged_cells_hold_all_layouts_of_a_rule_under_a_max_model_len() -> None:
    report = small_grid()
    merged = merge_cells(report.cells)
    assert [(cell.max_model_len, cell.rule) for cell in merged] == [
        (length, rule) for length in (16, 4096) for rule in ("last", "even", "v1")
    ]
    for cell in merged:
        same = [one for one in report.layouts if (one.max_model_len, one.rule) == (cell.max_model_len, cell.rule)]
        assert cell.num_reqs == (4, 256)
        assert cell.shapes == len(same)
        assert cell.overflow == sum(layout.verdict == "overflow" for layout in same)
        assert cell.over_length == sum(layout.verdict == "over-length" for layout in same)
        assert cell.worst in same
        assert cell.worst.badness == max(layout.badness for layout in same)


def test_cells_of_different_block_sizes_stay_apart() -> None:
    merged = merge_cells(small_grid(block_size=[16, 32]).cells)
    assert [cell.block_size for cell in merged] == [16, 16, 16, 32, 32, 32] * 2
