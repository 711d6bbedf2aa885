# SPDX-License-Identifier: Apache-2.0
"""cukiln::sample on the CPU."""

import math

import pytest
import torch

from torch_support import matrix, sampler_state


def test_greedy_rows_take_the_first_of_the_largest():
    logits = torch.tensor([[0.0, 3, 3, 1], [math.nan, -1, -2, -3], [-math.inf] * 4])
    zero = torch.zeros(3)
    tokens, log_probabilities = torch.ops.cukiln.sample(logits, sampler_state(), temperature=zero)
    assert tokens.tolist() == [1, 1, 0]
    expected = logits.nan_to_num(-math.inf, neginf=-math.inf).log_softmax(-1)[[0, 1], [1, 1]]
    assert torch.allclose(log_probabilities, torch.cat([expected, torch.tensor([-math.log(4)])]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_best_token_alone_is_the_greedy_one(dtype):
    logits = torch.zeros(300, 50, dtype=dtype)
    logits[:, [7, 9, 30]] = 5.0
    one, half = torch.ones(300, dtype=torch.int32), torch.full((300,), 0.5)
    greedy = torch.ops.cukiln.sample(logits, sampler_state(), temperature=torch.zeros(300))
    for seed in (1, 2):
        given = {"top_k": one, "temperature": half, "top_p": half}
        drawn = torch.ops.cukiln.sample(logits, sampler_state(seed), **given)
        assert all(torch.equal(a, b) for a, b in zip(drawn, greedy, strict=True))
    assert greedy[0].eq(7).all()


def by_definition(weights, top_k=12, top_p=1.0, min_p=0.0, joint=False):
    """With sets: those that top-k leaves, of them top-p's, of them min-p's."""
    order = weights.argsort(descending=True)
    best = order[:top_k]
    share = weights[best] if joint else weights[best] / weights[best].sum()
    kept = best[(share.cumsum(0) - share) < top_p]
    kept = kept[weights[kept] >= min_p * weights.max()]
    out = torch.zeros_like(weights)
    out[kept] = weights[kept] / weights[kept].sum()
    return out


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 3},
        {"top_p": 0.6},
        {"min_p": 0.2},
        {"top_k": 4, "top_p": 0.8, "min_p": 0.1},
        {"top_k": 4, "top_p": 0.8, "joint": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_draws_follow_the_filtered_distribution(dtype, filters):
    rows, vocabulary = 20000, 12
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(1)).mul(2).to(dtype)
    expected = by_definition((logits.double() / 1.7).softmax(-1), **filters)
    types = {"top_k": torch.int32, "top_p": torch.float32, "min_p": torch.float32}
    tokens, log_probabilities = torch.ops.cukiln.sample(
        logits.expand(rows, vocabulary),
        sampler_state(7),
        temperature=torch.full((rows,), 1.7),
        joint=filters.get("joint", False),
        **{n: torch.full((rows,), filters[n], dtype=types[n]) for n in filters if n in types},
    )
    counts = torch.bincount(tokens, minlength=vocabulary).double() / rows
    assert (counts - expected).abs().max() < 0.015
    assert not counts[expected == 0].any()
    logarithms = expected[tokens.long()].log().float()
    assert torch.allclose(log_probabilities, logarithms, atol=1e-4)


def test_ties_with_the_last_that_is_kept_are_kept():
    logits = torch.tensor([1.0, 3, 2, 2, 2, 0]).expand(5000, 6)
    two = torch.full((5000,), 2, dtype=torch.int32)
    tokens = torch.ops.cukiln.sample(logits, sampler_state(), top_k=two)[0]
    assert set(tokens.tolist()) == {1, 2, 3, 4}


def test_a_state_repeats_its_draws_and_moves_on():
    logits = matrix(50, 100).float()
    state = sampler_state(3)
    first = torch.ops.cukiln.sample(logits, state)[0]
    assert state.tolist() == [3, 1, 0]
    second = torch.ops.cukiln.sample(logits, state)[0]
    assert not first.equal(second)
    assert first.equal(torch.ops.cukiln.sample(logits, sampler_state(3))[0])
    assert not first.equal(torch.ops.cukiln.sample(logits, sampler_state(4))[0])


def test_a_row_with_a_seed_of_its_own_draws_the_same_wherever_it_is():
    logits = matrix(1, 1000).float().expand(40, 1000)
    seeds = torch.stack([torch.arange(40), torch.full((40,), 7)], 1)
    reversed_seeds = seeds.flip(0).contiguous()
    state = sampler_state(3)
    first = torch.ops.cukiln.sample(logits, state, row_seeds=seeds)[0]
    assert len(set(first.tolist())) > 20
    assert seeds.tolist() == [[i, 8] for i in range(40)]
    assert state.tolist() == [3, 0, 0]
    elsewhere = torch.ops.cukiln.sample(logits, state, row_seeds=reversed_seeds)[0]
    assert elsewhere.flip(0).equal(first)
    assert not torch.ops.cukiln.sample(logits, state, row_seeds=seeds)[0].equal(first)


def expected_top(logits, count, temperature=None):
    scaled = logits.double() if temperature is None else logits.double() / temperature[:, None]
    exact = torch.log_softmax(scaled, 1)
    order = torch.argsort(logits.double(), dim=1, descending=True, stable=True)[:, :count]
    return exact, order


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_log_probabilities_descend_and_ties_take_the_lower_token(dtype):
    torch.manual_seed(4)
    logits = (torch.randn(3, 500) * 4).round().to(dtype)  # many equals
    tokens = torch.tensor([0, 499, 7], dtype=torch.int32)
    temperature = torch.tensor([0.5, 1.0, 3.0])
    for scales in (None, temperature):
        exact, order = expected_top(logits, 20, scales)
        top, top_tokens, of_tokens = torch.ops.cukiln.top_log_probabilities(logits, 20, scales, tokens)
        assert (top.dtype, top_tokens.dtype) == (torch.float32, torch.int32)
        assert top_tokens.equal(order.int())
        torch.testing.assert_close(top.double(), exact.gather(1, order), rtol=0, atol=1e-5)
        torch.testing.assert_close(of_tokens.double(), exact[range(3), tokens.long()], rtol=0, atol=1e-5)


def test_greedy_temperatures_count_as_1_and_rows_may_overlap():
    logits = matrix(1, 300).float().expand(3, 300)
    temperature = torch.tensor([1.0, 0.0, math.nan])
    top = torch.ops.cukiln.top_log_probabilities(logits, 5, temperature)[0]
    assert top[1].equal(top[0]) and top[2].equal(top[0])
    assert not top[0].equal(torch.ops.cukiln.top_log_probabilities(logits, 5, temperature + 1)[0][0])


def test_log_probabilities_of_nan_infinities_and_tokens_outside():
    inf, nan = math.inf, math.nan
    logits = torch.tensor([[nan, 0, -inf, 0.5], [1, inf, inf, nan], [-inf, nan, -inf, -inf]])
    tokens = torch.tensor([2, 4, -1], dtype=torch.int32)
    top, top_tokens, of_tokens = torch.ops.cukiln.top_log_probabilities(logits, 3, tokens=tokens)
    assert top_tokens.tolist() == [[3, 1, 0], [1, 2, 0], [0, 1, 2]]
    half, quarter = math.log(0.5), math.log(0.25)
    expected = torch.tensor([[-0.4740769, -0.9740769, -inf], [half, half, -inf], [quarter] * 3])
    torch.testing.assert_close(top, expected, rtol=0, atol=1e-5)
    assert of_tokens[0] == -inf and of_tokens[1:].isnan().all()


def test_the_sampled_token_has_its_log_probability_without_the_largest():
    logits = torch.randn(4, 100)
    tokens, drawn = torch.ops.cukiln.sample(logits, sampler_state(2))
    top, top_tokens, of_tokens = torch.ops.cukiln.top_log_probabilities(logits, 0, tokens=tokens)
    assert top.shape == top_tokens.shape == (4, 0)
    torch.testing.assert_close(of_tokens, drawn, rtol=0, atol=1e-5)
    assert torch.ops.cukiln.top_log_probabilities(logits, 100 - 70)[2].shape == (0,)


def test_random_words_are_philox():
    # Salmon et al.: Philox4x32-10 of counter 0 and key 0 begins 6627e8d5 e169c58d.
    word = 0xE169C58D6627E8D5 / 2**64
    logits = torch.zeros(1, 1000)
    token = torch.ops.cukiln.sample(logits, sampler_state(0))[0]
    assert token.item() == math.floor(word * 1000)
