"""Noise: SplitMix64's known numbers, uniform, independent across keys, the same however it is asked for."""

import math

import pytest
import torch
from scipy import stats

from outrider.sampling.noise import Noise, Stream, mix64

GOLDEN = 0x9E3779B97F4A7C15
STREAMS: tuple[Stream, ...] = ("token", "draft", "accept", "recover")


def uniforms(noise: Noise, position: int, count: int, stream: Stream = "token") -> torch.Tensor:
    """The uniform numbers from which the Gumbel noise was made."""
    return (-(-noise.gumbel(position, count, stream=stream)).exp()).exp()


def chi_square(sample: torch.Tensor, cells: int = 64) -> float:
    """p-value of the hypothesis that the sample is uniform on (0, 1)."""
    counts = torch.histc(sample, cells, 0.0, 1.0)
    return float(stats.chisquare(counts.numpy()).pvalue)


@pytest.mark.parametrize(
    ("seed", "outputs"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
    ],
)
def test_known_values_of_splitmix64(seed, outputs):
    assert [mix64(seed + i * GOLDEN) for i in range(len(outputs))] == outputs


def test_the_tensor_version_is_splitmix64_too():
    noise = Noise(11, round=4)
    key = noise._key(9, "recover")
    expected = []
    for token_id in range(500):
        cell = mix64(key + token_id * GOLDEN) >> 12
        expected.append(-math.log(-math.log((cell + 0.5) * 2.0**-52)))
    assert noise.gumbel(9, 500, stream="recover").tolist() == pytest.approx(expected, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("size", [1, 7, 4096, 151_665])
def test_some_ids_get_the_same_bits_as_all(size):
    noise = Noise(3)
    everything = noise.gumbel(17, size)
    for count in (0, 1, 2, 3, 5, 8, 13, 100, 3000):
        ids = torch.randint(0, size, (count,), generator=torch.Generator().manual_seed(count))
        assert torch.equal(noise.gumbel_at(17, ids), everything[ids])
        assert torch.equal(noise.gumbel_at(17, ids.int()), everything[ids])


def test_a_larger_vocabulary_only_adds_numbers():
    assert torch.equal(Noise(5).gumbel(2, 1000)[:64], Noise(5).gumbel(2, 64))


def test_uniform_over_ids_positions_seeds_and_rounds():
    assert chi_square(uniforms(Noise(1), 0, 100_000)) > 1e-4
    first = [uniforms(Noise(1), position, 1) for position in range(800)]
    assert chi_square(torch.cat(first), 16) > 1e-4
    assert chi_square(torch.cat([uniforms(Noise(seed), 0, 1) for seed in range(800)]), 16) > 1e-4
    assert chi_square(torch.cat([uniforms(Noise(1, turn), 0, 1) for turn in range(800)]), 16) > 1e-4
    numbers = [Noise(1).uniform(position, "accept", index) for position in range(500) for index in range(10)]
    assert chi_square(torch.tensor(numbers)) > 1e-4


def test_the_check_of_uniformity_can_fail():
    skewed = uniforms(Noise(1), 0, 100_000) ** 1.05
    assert chi_square(skewed) < 1e-4


NEIGHBOURS = [
    (Noise(1), 1, "token"),
    (Noise(0), 2, "token"),
    (Noise(0, round=0), 1, "token"),
    (Noise(0, round=1), 1, "token"),
    (Noise(0), 1, "draft"),
    (Noise(0), 1, "accept"),
    (Noise(0), 1, "recover"),
    (Noise(1 << 63), 1, "token"),
]


@pytest.mark.parametrize(("noise", "position", "stream"), NEIGHBOURS)
def test_neighbouring_keys_are_independent(noise, position, stream):
    ours, theirs = uniforms(Noise(0), 1, 100_000), uniforms(noise, position, 100_000, stream)
    pairs = (ours * 8).long() * 8 + (theirs * 8).long()
    assert stats.chisquare(torch.bincount(pairs, minlength=64).numpy()).pvalue > 1e-4
    for shift in range(-3, 4):  # nor is one key's sequence another's, shifted
        assert not torch.equal(ours.roll(shift)[10:-10], theirs[10:-10])


def test_no_key_is_met_twice():
    keys = {
        Noise(seed, turn)._key(position, stream)
        for seed in range(5)
        for turn in (None, 0, 1, 2)
        for position in range(20)
        for stream in STREAMS
    }
    assert len(keys) == 5 * 4 * 20 * 4


def test_always_finite_and_below_one():
    extremes = torch.tensor([0, -1, 1, 1 << 62], dtype=torch.int64)
    from outrider.sampling.noise import _to_gumbel

    assert bool(_to_gumbel(extremes).isfinite().all())
    assert all(0 <= Noise(seed).uniform(seed, "accept") < 1 for seed in range(1000))


def test_torchs_own_generator_is_left_alone():
    state = torch.get_rng_state()
    Noise(1).gumbel(0, 100)
    Noise(1).uniform(0, "accept")
    assert torch.equal(torch.get_rng_state(), state)


def test_the_largest_seed_and_position_work():
    assert bool(Noise((1 << 64) - 1, round=1 << 40).gumbel(1 << 40, 10).isfinite().all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_makes_the_same_numbers():
    here, there = Noise(3).gumbel(1, 1000), Noise(3).gumbel(1, 1000, device="cuda").cpu()
    torch.testing.assert_close(here, there, rtol=1e-14, atol=1e-14)
