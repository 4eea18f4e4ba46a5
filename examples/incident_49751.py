"""The incident of vLLM PR #49751, replayed on the CPU: python incident_49751.py (needs torch).

vLLM's second model runner gave the remainder `num_tokens % num_reqs` of a dummy batch to its last request.
"""

import dummyaudit
from dummyaudit.walk import walk

NUM_REQS, NUM_TOKENS, MAX_MODEL_LEN = 256, 496, 16
RULES = {"last": "before the fix", "even": "after the fix"}


def show_verdicts() -> None:
    report = dummyaudit.compare(num_reqs=NUM_REQS, num_tokens=NUM_TOKENS, max_model_len=MAX_MODEL_LEN)
    print(f"1. {NUM_REQS} requests share {NUM_TOKENS} tokens; the longest legal request has {MAX_MODEL_LEN}.")
    for layout in report.layouts:
        worst = layout.worst
        print(
            f"   {layout.rule}, {RULES[layout.rule]}: {layout.verdict}; request {worst.request} has "
            f"seq_len {worst.seq_len}, {worst.pages} of {layout.row_slots} pages"
        )


def show_reads() -> None:
    table = dummyaudit.BlockTable(max_model_len=MAX_MODEL_LEN, block_size=16, max_num_seqs=NUM_REQS)
    print(f"2. Built for real, the block table has {table.max_num_seqs} rows of {table.row_slots} page ids.")
    for rule, when in RULES.items():
        batch = dummyaudit.build(rule, NUM_REQS, NUM_TOKENS, table)
        reads = walk(batch)
        print(
            f"   {rule}, {when}: a kernel reads {reads.own[0]} ids of its requests' own rows, "
            f"{reads.other_row[0]} of other rows, {reads.outside[0]} that are no page ids"
        )
        for finding in dummyaudit.check(batch.seq_lens, batch.block_table, table.block_size, MAX_MODEL_LEN):
            print(f"   {finding}")


def show_ladder() -> None:
    print("3. The fault shows only where max_model_len, and with it the row, is short:")
    layouts = dummyaudit.compare(num_reqs=NUM_REQS, num_tokens=NUM_TOKENS, rules=["last"]).layouts
    for layout in layouts:
        pages = f"{layout.worst.pages} pages for {layout.row_slots} slots"
        print(f"   max_model_len {layout.max_model_len:3}: {pages}, {layout.verdict}")
    print(f"   last fits from max_model_len {layouts[-1].needs_max_model_len.row} on.")


if __name__ == "__main__":
    show_verdicts()
    show_reads()
    show_ladder()
