"""How an engine's own tests check its dummy batches: copy it, and put your engine's builder in the place of this."""

import pytest

import dummyaudit

MAX_MODEL_LEN, MAX_NUM_SEQS, BLOCK_SIZE = 16, 256, 16
CAPTURE_SIZES = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]


def make_dummy(num_tokens):
    """Stands for your engine: the lengths of the requests, and the shape of the block table that they read."""
    num_reqs = min(num_tokens, MAX_NUM_SEQS)
    each, rest = divmod(num_tokens, num_reqs)
    seq_lens = [each] * (num_reqs - rest) + [each + 1] * rest
    row_slots = dummyaudit.BlockTable(max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE).row_slots
    return seq_lens, (MAX_NUM_SEQS, row_slots)


@pytest.mark.parametrize("num_tokens", CAPTURE_SIZES)
def test_dummy_batch_fits_its_block_table(num_tokens):
    seq_lens, block_table = make_dummy(num_tokens)
    dummyaudit.assert_fits(seq_lens, block_table, BLOCK_SIZE, MAX_MODEL_LEN)


def test_the_old_rule_is_found():
    """The same call on what vLLM built before PR #49751: it fails with the request and what it reads."""
    with pytest.raises(AssertionError, match="request 255 has seq_len 241: 16 pages of 8 slots"):
        dummyaudit.assert_fits([1] * 255 + [241], (256, 8), BLOCK_SIZE)
