"""The native product: right to rounding, and every row's bits independent of its neighbours, its place, the threads."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.errors import OptionError, TargetError, UnsupportedError
from outrider.kernels import NativeLinear, available, build, library, native_linear, quantize_rows
from outrider.kernels.reference import linear_reference

KINDS = ("bf16", "fp32", "int8")
DTYPES = (torch.bfloat16, torch.float32)

needs_kernels = pytest.mark.skipif(not available()[0], reason=available()[1])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Most calls here are tiny; the tests that mean threads set their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(kind: str, outputs: int, size: int, bias_dtype: torch.dtype | None = None) -> NativeLinear:
    torch.manual_seed(outputs * 10_007 + size)
    weight = torch.randn(outputs, size)
    bias = None if bias_dtype is None else torch.randn(outputs).to(bias_dtype)
    scale = None
    if kind == "int8":
        weight, scale = quantize_rows(weight)
    elif kind == "bf16":
        weight = weight.bfloat16()
    layer = native_linear(weight, bias, scale)
    assert layer is not None
    return layer


def reference(layer: NativeLinear, x: Tensor) -> Tensor:
    return linear_reference(x, layer.weight, layer.bias, layer.scale)


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 576, 4099])
@pytest.mark.parametrize("outputs", [1, 3, 4, 13, 97, 200])
def test_the_product_is_right_for_odd_shapes(kind: str, dtype: torch.dtype, outputs: int, size: int) -> None:
    layer = make(kind, outputs, size, torch.float32)
    for rows in (1, 2, 3, 5, 131):
        x = torch.randn(rows, size).to(dtype)
        expected = reference(layer, x)
        magnitude = linear_reference(x.abs(), layer.weight.abs(), None, layer.scale) + 1
        allowed = magnitude * 2**-20 + (expected.abs() * 2**-8 if dtype == torch.bfloat16 else 0)
        assert bool(((layer(x).double() - expected).abs() <= allowed).all())


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "size"), [(50, 1536), (29, 77), (5, 8960)])
def test_a_row_has_the_same_bits_in_any_company_and_at_any_place(
    kind: str, dtype: torch.dtype, outputs: int, size: int
) -> None:
    layer = make(kind, outputs, size, torch.bfloat16)
    x = torch.randn(140, size).to(dtype)
    alone = torch.cat([layer(x[i : i + 1]) for i in range(140)])
    for rows in [*range(1, 41), 127, 128, 129, 130, 140]:
        assert torch.equal(layer(x[:rows]), alone[:rows]), rows
    for start in range(1, 9):  # the same row at another place, beside other rows
        assert torch.equal(layer(x[start : start + 12]), alone[start : start + 12]), start


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    layer = make(kind, 1000, 600)
    for rows in (1, 4, 9, 200):
        x = torch.randn(rows, 600).bfloat16()
        results: list[Tensor] = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(layer(x))
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])


@needs_kernels
def test_a_pass_is_the_same_again_and_again() -> None:
    layer = make("bf16", 500, 1536)
    x = torch.randn(9, 1536).bfloat16()
    torch.set_num_threads(2)
    first = layer(x)
    assert all(torch.equal(first, layer(x)) for _ in range(50))


@needs_kernels
def test_a_row_takes_nothing_from_its_neighbours() -> None:
    layer = make("fp32", 64, 1536)
    x = torch.randn(40, 1536)
    changed = x.clone()
    changed[7, 3] += 0.01
    before, after = layer(x), layer(changed)
    assert not torch.equal(before[7], after[7])
    before[7] = after[7]
    assert torch.equal(before, after)


@needs_kernels
def test_rounding_to_bf16_is_torchs_own() -> None:
    weight = torch.eye(16)
    layer = native_linear(weight, torch.linspace(-1, 1, 16))
    assert layer is not None
    x = (torch.randn(4000, 16) * torch.logspace(-30, 30, 4000)[:, None]).bfloat16()
    exact = x.float() + torch.linspace(-1, 1, 16)
    assert torch.equal(layer(x), exact.bfloat16())
    ties = torch.tensor([[0x3F80_8000, 0x3F81_8000, 0x7F7F_8000, 0x0000_8000]], dtype=torch.int32).view(torch.float32)
    widened = native_linear(ties.reshape(4, 1))
    assert widened is not None
    assert torch.equal(widened(torch.ones(1, 1).bfloat16()), ties.bfloat16())


@needs_kernels
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_infinities_and_nans_stay_where_they_belong(kind: str) -> None:
    layer = make(kind, 20, 45)
    x = torch.randn(6, 45).bfloat16()
    clean = layer(x)
    x[2, 44] = float("nan")
    x[4, 0] = float("inf")
    y = layer(x)
    assert bool(y[2].isnan().all())
    assert bool(y[4].isinf().all())
    assert torch.equal(y[[0, 1, 3, 5]], clean[[0, 1, 3, 5]])


@needs_kernels
def test_nothing_beyond_a_weight_row_is_read() -> None:
    storage = torch.full((5 * 19 + 64,), float("nan")).bfloat16()
    weight = storage[: 5 * 19].view(5, 19)
    weight.copy_(torch.randn(5, 19))
    layer = native_linear(weight)
    assert layer is not None
    assert not layer(torch.randn(3, 19).bfloat16()).isnan().any()


@needs_kernels
def test_shapes_dtypes_and_strides_of_the_input() -> None:
    layer = make("bf16", 12, 40, torch.bfloat16)
    x = torch.randn(2, 3, 40).bfloat16()
    assert torch.equal(layer(x).reshape(6, 12), layer(x.reshape(6, 40)))
    assert layer(x).dtype == torch.bfloat16
    assert layer(x.float()).dtype == torch.float32
    assert layer(torch.empty(0, 40)).shape == (0, 12)
    assert layer(x[0, 0]).shape == (12,)
    strided = torch.randn(6, 80).bfloat16()[:, ::2]
    assert torch.equal(layer(strided), layer(strided.contiguous()))


@needs_kernels
def test_the_weights_are_shared_not_copied_and_may_move() -> None:
    linear = nn.Linear(30, 7, dtype=torch.bfloat16)
    layer = native_linear(linear.weight, linear.bias)
    assert layer is not None
    assert layer.weight is linear.weight
    assert set(layer.state_dict()) == set(linear.state_dict())
    x = torch.randn(3, 30).bfloat16()
    with torch.no_grad():
        linear.weight.mul_(2)
    assert torch.allclose(layer(x).float(), F.linear(x, linear.weight, linear.bias).float(), atol=0.1)
    wide = layer.float()
    assert torch.allclose(wide(x.float()), F.linear(x.float(), linear.weight.float(), linear.bias.float()), atol=1e-4)
    with pytest.raises(TargetError, match="float64"):
        layer.double()(x)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_can_be_copied_and_pickled(kind: str) -> None:
    layer = make(kind, 9, 33, torch.float32)
    x = torch.randn(3, 33)
    expected = layer(x)
    twin, loaded = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    assert twin.weight.data_ptr() != layer.weight.data_ptr()
    with torch.no_grad():
        layer.weight.zero_()  # the copies do not look into the original
    assert torch.equal(twin(x), expected)
    assert torch.equal(loaded(x), expected)


@needs_kernels
def test_bad_input_is_refused_by_name() -> None:
    layer = make("bf16", 8, 40)
    with pytest.raises(TargetError, match=r"\(\.\.\., 40\).*not \(2, 41\)"):
        layer(torch.randn(2, 41).bfloat16())
    with pytest.raises(TargetError, match="float64"):
        layer(torch.randn(2, 40).double())
    with pytest.raises(UnsupportedError, match="inference_mode"):
        layer(torch.randn(2, 40, requires_grad=True))
    with torch.no_grad():
        layer(torch.randn(2, 40, requires_grad=True))


def test_shapes_that_do_not_fit_are_refused_with_or_without_kernels() -> None:
    with pytest.raises(OptionError, match=r"bias has shape \(3,\); the weight needs \(4,\)"):
        native_linear(torch.randn(4, 5), torch.randn(3))
    with pytest.raises(OptionError, match="outputs, inputs"):
        native_linear(torch.randn(4))
    with pytest.raises(OptionError, match="int8"):
        native_linear(torch.zeros(4, 5, dtype=torch.int8))
    with pytest.raises(OptionError, match="int8"):
        native_linear(torch.randn(4, 5), None, torch.ones(4))


def test_what_the_kernel_cannot_read_is_left_to_torch() -> None:
    assert native_linear(torch.randn(4, 5).double()) is None
    assert native_linear(torch.randn(5, 4).T) is None
    assert native_linear(torch.randn(4, 5, device="meta")) is None
    assert native_linear(torch.randn(4, 5), torch.randn(4).half()) is None


def test_quantised_rows_are_within_half_a_step() -> None:
    weight = torch.randn(9, 33)
    weight[4] = 0
    rows, scale = quantize_rows(weight)
    assert bool(((rows * scale[:, None] - weight).abs() <= scale[:, None] * 0.501).all())
    assert int(rows.abs().amax()) == 127
    assert not rows[4].any()


@needs_kernels
def test_one_openmp_runtime_serves_torch_and_the_kernels() -> None:
    torch.set_num_threads(2)
    make("bf16", 400, 200)(torch.randn(4, 200))
    torch.randn(500, 500) @ torch.randn(500, 500)
    names = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    own = {name for name in names if ".libs/" not in name}  # other packages may bring copies of theirs
    assert len({name for name in own if build.OPENMP_NAME.search(name)}) == 1


@needs_kernels
def test_the_library_is_cached_and_a_concurrent_build_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    fast = ("-std=gnu11", "-O0", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
    monkeypatch.setattr(build, "FLAGS", fast)
    script = f"import torch; from outrider.kernels import build; build.FLAGS = {fast!r}; print(build.build())"
    commands = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {command.communicate(timeout=300)[0].strip() for command in commands}
    assert [command.returncode for command in commands] == [0, 0]
    assert len(paths) == 1
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == [Path(paths.pop()).name]
    before = build.build().stat().st_mtime_ns
    assert build.build().stat().st_mtime_ns == before
    sound = build.build().read_bytes()
    build.build().write_bytes(sound[:-900])  # as after a crash of the machine; loading it could kill the process
    assert build.build().read_bytes() == sound


def test_where_there_is_a_compiler_there_are_kernels() -> None:
    """Else a broken kernel, turned away by its trial, would only skip the tests above."""
    if os.environ.get(library.SWITCH) == "0" or not any(shutil.which(name) for name in build.COMPILERS):
        pytest.skip("switched off, or no compiler")
    assert available()[0], available()[1]


def test_every_obstacle_gives_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    load = library._load.__wrapped__  # the uncached function
    monkeypatch.setenv("OUTRIDER_KERNELS", "0")
    assert load() == (None, "switched off by OUTRIDER_KERNELS=0")
    monkeypatch.setenv("OUTRIDER_KERNELS", "1")
    monkeypatch.setattr(build, "COMPILERS", ("no-such-compiler",))
    assert "no C compiler" in load()[1]
    false = tmp_path / "cc"
    false.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    false.chmod(0o755)
    monkeypatch.setattr(build, "COMPILERS", (str(false),))
    assert load() == (None, "the compiler failed with status 3: broken")
    assert not list((tmp_path / "kernels").iterdir())


@needs_kernels
def test_a_library_that_crashes_never_reaches_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "bad.c").write_text("int outrider_linear(void) { __builtin_trap(); }\n")
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "SOURCES", sources)
    with pytest.raises(build.BuildError, match="failed their trial with status -"):
        build.build()
    (sources / "bad.c").write_text("int outrider_linear(void) { return 0; }\n")  # runs, and computes nothing
    with pytest.raises(build.BuildError, match="row 0, output 0"):
        build.build()
    assert not list((tmp_path / "kernels").iterdir())


def test_the_switch_turns_the_kernels_off() -> None:
    script = "import torch; from outrider.kernels import native_linear; print(native_linear(torch.ones(2, 2)))"
    environment = {**os.environ, "OUTRIDER_KERNELS": "0"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "None"
