"""The scan's definition and invariants, tested for the naive loop and for the path that the machine selects."""

import itertools
import math

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scan_cases import assert_matches_naive, make_case, offsets_of, run_and_grad

from hopstate.cli.info import describe_paths
from hopstate.errors import ConfigError, DataError, ShapeError, SlowPathWarning
from hopstate.ops import dispatch, selective_influence, selective_scan, selective_scan_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads

MODES = list(itertools.product(("zoh", "euler"), (False, True)))
LENGTHS = [3, 0, 17, 1, 33, 2]


def scan(case, **options):
    first = [case[name] for name in ("u", "delta", "A", "B", "C")]
    rest = {name: case[name] for name in ("D", "z", "initial_state") if name in case}
    return selective_scan(*first, **{**rest, **options})


def tokens_of(case, part):
    """The case restricted to a slice of its tokens."""
    return {name: x[part] if name in ("u", "delta", "B", "C", "z") else x for name, x in case.items()}


@pytest.mark.parametrize("path", ["naive", "fast"])
@pytest.mark.parametrize(("rule", "reverse"), MODES)
def test_passes_gradcheck(rule, reverse, path):
    case, offsets = make_case([3, 0, 2], 2, 3), offsets_of([3, 0, 2])
    leaves, options = [x.requires_grad_() for x in case.values()], {"reverse": reverse, "discretization": rule}

    def function(u, delta, A, B, C, D, z, initial):
        if path == "naive":
            return selective_scan_naive(u, delta, A, B, C, D, z, offsets, initial, **options)
        packed = {"offsets": offsets, "initial_state": initial, "return_state": True}
        return selective_scan(u, delta, A, B, C, D=D, z=z, **packed, **options)

    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize(("rule", "reverse"), MODES)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 7, 13, 63, 64, 65]), min_size=1, max_size=3),
    channels=st.sampled_from([1, 5, 16, 19, 37]),
    S=st.sampled_from([1, 3, 4, 6, 16, 64]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    plain=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_fast_path_equals_float64_loop(rule, reverse, lengths, channels, S, dtype, plain, seed):
    assume(any(lengths) or not plain)  # of no token, the loop's outputs have no gradient
    case = make_case(lengths, channels, S, dtype, seed=seed, plain=plain)
    assert_matches_naive(case, offsets_of(lengths), reverse=reverse, discretization=rule)


@pytest.mark.parametrize(("lengths", "channels"), [([300], 200), ([5] * 40, 16), ([200, 1, 0, 150], 16)])
def test_every_tiling_equals_the_float64_loop(lengths, channels):
    case = make_case(lengths, channels, 4, torch.float32)
    assert_matches_naive(case, offsets_of(lengths), discretization="zoh")


@pytest.mark.parametrize(("rule", "reverse"), MODES)
def test_packed_equals_padded_equals_one_by_one(rule, reverse):
    options = {"reverse": reverse, "discretization": rule, "return_state": True}
    case = make_case([9] * 4, 6, 5)
    packed, packed_state = scan(case, offsets=offsets_of([9] * 4), **options)
    shaped = {k: x.view(4, 9, -1) if k in ("u", "delta", "B", "C", "z") else x for k, x in case.items()}
    padded, padded_state = scan(shaped, **options)
    assert_close_rmse(padded.view(36, 6), packed)
    assert_close_rmse(padded_state, packed_state)
    for i in range(4):
        one = tokens_of(case, slice(9 * i, 9 * i + 9)) | {"initial_state": case["initial_state"][i : i + 1]}
        y, state = scan(one, **options)
        assert_close_rmse(y, packed[9 * i : 9 * i + 9])
        assert_close_rmse(state, packed_state[i : i + 1])


@pytest.mark.parametrize("rule", ["zoh", "euler"])
def test_reverse_equals_flipped_scan_of_flipped_input(rule):
    case = make_case([21], 6, 5)
    flipped = {k: x.flip(0) if k in ("u", "delta", "B", "C", "z") else x for k, x in case.items()}
    y, state = scan(case, reverse=True, return_state=True, discretization=rule)
    expected, expected_state = scan(flipped, return_state=True, discretization=rule)
    assert_close_rmse(y, expected.flip(0))
    assert_close_rmse(state, expected_state)


@pytest.mark.parametrize(("rule", "reverse"), MODES)
@given(cut=st.integers(0, 40))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_prefix_then_suffix_equals_the_full_scan(rule, reverse, cut):
    options = {"reverse": reverse, "discretization": rule, "return_state": True}
    case = make_case([40], 6, 5)
    whole, last = scan(case, **options)
    parts = [slice(0, cut), slice(cut, 40)]
    state, outputs = case["initial_state"], {}
    for part in reversed(parts) if reverse else parts:
        outputs[part.start, part.stop], state = scan(tokens_of(case, part) | {"initial_state": state}, **options)
    assert_close_rmse(torch.cat([outputs[p.start, p.stop] for p in parts]), whole)
    assert_close_rmse(state, last)


@pytest.mark.parametrize("rule", ["zoh", "euler"])
def test_steps_equal_the_scan(rule):
    case = make_case([12] * 3, 6, 5)
    offsets = offsets_of([12] * 3)
    y, last = scan(case, offsets=offsets, discretization=rule, return_state=True)
    state, single = case["initial_state"], torch.arange(4)
    for t in range(12):
        now = tokens_of(case, offsets[:-1] + t) | {"initial_state": state}
        out, state = scan(now, offsets=single, discretization=rule, return_state=True)
        assert_close_rmse(out, y[offsets[:-1] + t])
    assert_close_rmse(state, last)


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_leaks_across_an_offset(reverse):
    lengths = [5, 0, 20, 7]
    offsets, inner = offsets_of(lengths), slice(5, 25)
    case = make_case(lengths, 6, 5, torch.float32)
    before = run_and_grad(case, offsets, reverse=reverse)
    for name in ("u", "delta", "B", "C", "z"):
        case[name][:5], case[name][25:] = 1e3, 1e3
    after = run_and_grad(case, offsets, reverse=reverse)
    for name in ("y", "du", "ddelta", "dB", "dC", "dz"):
        torch.testing.assert_close(before[name][inner], after[name][inner])


@pytest.mark.parametrize(("rule", "reverse"), MODES)
def test_influence_sums_to_the_last_output(rule, reverse):
    case = make_case(LENGTHS, 6, 5, plain=True)
    offsets = offsets_of(LENGTHS)
    y = scan(case, offsets=offsets, reverse=reverse, discretization=rule)
    maps = (case[k] for k in ("delta", "A", "B", "C"))
    weights = selective_influence(*maps, offsets=offsets, reverse=reverse, discretization=rule)
    assert not weights.requires_grad
    for start, end in itertools.pairwise(offsets.tolist()):
        if end > start:
            total = (weights * case["u"])[start:end].sum(0)
            assert_close_rmse(total, y[start if reverse else end - 1])


def test_influence_is_the_product_of_theorem_4_2():
    case = make_case([6], 3, 4, plain=True)
    delta, A, B, C = (case[k] for k in ("delta", "A", "B", "C"))
    weights = selective_influence(delta, A, B, C)
    for j in range(6):
        later = delta[j + 1 :].sum(0)[:, None]
        gain = torch.expm1(delta[j][:, None] * A) / A
        assert_close_rmse(weights[j], (C[-1] * torch.exp(later * A) * gain * B[j]).sum(-1))
    padded = selective_influence(*(x[None] if x is not A else x for x in (delta, A, B, C)))
    assert_close_rmse(padded[0], weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [1e-30, 1e-6, 0.499, 0.501, 40.0, 1e30])
def test_one_step_keeps_its_digits_at_every_size_of_step(exponent, dtype):
    """One step from a state: y and its gradients by mpmath, for |delta A| from vanishing to overflowing."""
    a = -2.0
    dt = float(torch.tensor(exponent / 2, dtype=dtype))
    one = torch.ones(1, 1, dtype=dtype)
    u, B, C = 3 * one, 0.5 * one, 2 * one
    delta, A, h = dt * one, a * one, one[None] * 0.25
    delta.requires_grad_(), A.requires_grad_(), h.requires_grad_(), u.requires_grad_()
    y = selective_scan(u, delta, A, B, C, initial_state=h)
    grads = torch.autograd.grad(y.sum(), (u, delta, A, h))
    with mpmath.workdps(60):
        x, t, rate = mpmath.mpf(dt) * a, mpmath.mpf(dt), mpmath.mpf(a)
        decay, gain = mpmath.exp(x), mpmath.expm1(x) / rate
        slope = (t * decay - gain) / rate
        drive = mpmath.mpf(1.5)
        exact = (
            2 * (decay * 0.25 + gain * drive),
            gain,
            2 * (rate * decay * 0.25 + decay * drive),
            2 * (t * decay * 0.25 + slope * drive),
            2 * decay,
        )
    eps = torch.finfo(dtype).eps
    least = {torch.float32: 1e-30, torch.float64: 1e-290}[dtype]  # decays below exp(-86), exp(-700) round to about that
    for actual, value in zip((y, *grads), exact):
        assert math.isclose(actual.item(), float(value), rel_tol=40 * eps, abs_tol=least * max(1.0, dt))


def test_non_contiguous_inputs():
    case, offsets = make_case(LENGTHS, 6, 5), offsets_of(LENGTHS)
    expected = run_and_grad(case, offsets)
    odd = {k: x.transpose(0, -1).contiguous().transpose(0, -1) for k, x in case.items()}
    leaves = {k: x.requires_grad_() for k, x in odd.items()}
    y, state = scan(leaves, offsets=offsets, return_state=True)
    grads = torch.autograd.grad(y.sum(), list(leaves.values()))
    plain = {k: x.detach().clone().requires_grad_() for k, x in case.items()}
    same = torch.autograd.grad(scan(plain, offsets=offsets).sum(), list(plain.values()))
    assert_close_rmse(y, expected["y"])
    assert_close_rmse(state, expected["state"])
    for a, b in zip(grads, same, strict=True):
        assert_close_rmse(a, b)
    broadcast = scan(plain | {"u": torch.ones(1, 6, dtype=torch.float64).expand(56, 6)}, offsets=offsets)
    assert broadcast.shape == (56, 6)


def test_only_the_state_used_and_only_some_gradients_wanted():
    case = make_case([5, 3], 4, 3, plain=True)
    A = case["A"].clone().requires_grad_()
    _, state = scan(case | {"A": A}, offsets=offsets_of([5, 3]), return_state=True)
    (grad,) = torch.autograd.grad(state.sum(), A)
    B = case["A"].clone().requires_grad_()
    first = [case[k] for k in ("u", "delta")]
    _, expected = selective_scan_naive(
        *first, B, case["B"], case["C"], None, None, offsets_of([5, 3]), None, reverse=False, discretization="zoh"
    )
    assert_close_rmse(grad, torch.autograd.grad(expected.sum(), B)[0])


@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 0, 4), (2, 5, 0)])
def test_no_sequences_no_tokens_no_channels(shape):
    batch, length, channels = shape
    u = torch.zeros(shape, requires_grad=True)
    B = torch.zeros(batch, length, 3)
    y, state = selective_scan(u, torch.zeros(shape), -torch.ones(channels, 3), B, B, return_state=True)
    assert y.shape == shape
    assert state.shape == (batch, channels, 3)
    assert not state.any()
    y.sum().backward()
    assert u.grad is not None
    empty = torch.zeros(0, 4)
    out = selective_scan(
        empty, empty, -torch.ones(4, 3), empty[:, :3], empty[:, :3], offsets=torch.zeros(1, dtype=torch.int64)
    )
    assert out.shape == (0, 4)


def test_results_do_not_depend_on_the_number_of_threads():
    lengths = [64, 1, 0, 700, 30, 200] * 6
    case, offsets = make_case(lengths, 40, 4, torch.float32), offsets_of(lengths)
    one, three = with_threads(lambda: run_and_grad(case, offsets))
    assert all(torch.equal(one[name], three[name]) for name in one)


def test_vanishing_numbers_flush_to_zero_inside_the_kernels_only():
    """Decays below 1e-38 in both passes: correct to float32's smallest normal, torch's own arithmetic is unchanged."""
    case = make_case([200], 16, 4, torch.float32, plain=True)
    case["u"][1:] = 0
    case["delta"][:] = 0.5
    assert_matches_naive(case, offsets_of([200]), discretization="zoh")
    assert (torch.tensor(1e-38) * torch.tensor(1e-3)).item() > 0


def test_uninitialised_memory_is_never_read(monkeypatch):
    """Every array the CPU path allocates without filling starts as NaN; no result may show it."""
    cpu = pytest.importorskip("hopstate.ops.selective_scan.cpu_kernels")
    real = cpu.np.empty

    def poisoned(*args, **kwargs):
        array = real(*args, **kwargs)
        array.fill(float("nan"))
        return array

    case, offsets = make_case(LENGTHS, 19, 5, torch.float32), offsets_of(LENGTHS)
    clean = run_and_grad(case, offsets)
    monkeypatch.setattr(cpu.np, "empty", poisoned)
    dirty = run_and_grad(case, offsets)
    assert all(torch.allclose(clean[name], dirty[name], rtol=1e-5, atol=1e-6) for name in clean)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(dynamic):
    case, offsets = make_case(LENGTHS, 6, 5, torch.float32), offsets_of(LENGTHS)

    def loss(case, offsets):
        y, state = scan(case, offsets=offsets, return_state=True)
        return (y * 2).sum() + state.square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    grads = []
    for function in (loss, compiled):
        leaves = {k: x.clone().requires_grad_() for k, x in case.items()}
        grads.append(torch.autograd.grad(function(leaves, offsets), list(leaves.values())))
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*grads))


def test_exports_as_one_op():
    class Model(torch.nn.Module):
        def forward(self, u, delta, A, B, C):
            return selective_scan(u, delta, A, B, C)

    case = make_case([9], 4, 3, torch.float32, plain=True)
    program = torch.export.export(Model(), tuple(case.values()))
    assert "torch.ops.hopstate.selective_scan.default" in str(program.graph_module.code)
    torch.testing.assert_close(program.module()(*case.values()), scan(case), rtol=1e-5, atol=1e-6)


def test_op_registration_is_sound():
    case, offsets = make_case([9, 0, 4], 4, 3, torch.float32), offsets_of([9, 0, 4])
    inputs = [x.requires_grad_() for x in case.values()]
    arguments = (*inputs[:7], offsets, inputs[7], True, True, True, True)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")  # the fourth compares unread checkpoints
    torch.library.opcheck(torch.ops.hopstate.selective_scan.default, arguments, test_utils=checks)


def bad_cases():
    lengths, n = [3, 2], torch.float32
    yield "delta", {"delta": torch.ones(4, 6)}, ShapeError, "delta"
    yield "A rows", {"A": -torch.ones(5, 4)}, ShapeError, "A"
    yield "B", {"B": torch.ones(5, 3)}, ShapeError, "B"
    yield "C", {"C": torch.ones(5, 4, 1)}, ShapeError, "C"
    yield "D", {"D": torch.ones(5)}, ShapeError, "D"
    yield "z", {"z": torch.ones(5, 5)}, ShapeError, "z"
    yield "initial", {"initial_state": torch.ones(3, 6, 4)}, ShapeError, "initial_state"
    yield "integers", {"u": torch.ones(5, 6, dtype=torch.int64)}, ShapeError, "u"
    yield "integer delta", {"delta": torch.ones(5, 6, dtype=torch.int32)}, ShapeError, "delta"
    yield "device", {"B": torch.ones(5, 4, device="meta")}, ShapeError, "B"
    yield "float offsets", {"offsets": torch.tensor([0.0, 5.0])}, ShapeError, "offsets"
    yield "1-D u", {"u": torch.ones(5)}, ShapeError, "u"
    yield "offsets fall", {"offsets": torch.tensor([0, 4, 3, 5])}, DataError, "offsets"
    yield "offsets short", {"offsets": torch.tensor([0, 4])}, DataError, "offsets"
    yield "offsets late", {"offsets": torch.tensor([1, 5])}, DataError, "offsets"
    yield "A = 0", {"A": torch.tensor([[-1.0] * 4] * 5 + [[-1.0, 0.0, -1.0, 1.0]])}, DataError, r"A\[5, 1\]"
    negative = make_case(lengths, 6, 4, n, plain=True)["delta"]
    negative[3, 2] = -0.25
    yield "negative", {"delta": negative}, DataError, "token 3, channel 2"


@pytest.mark.parametrize(("change", "error", "message"), [pytest.param(*c[1:], id=c[0]) for c in bad_cases()])
def test_bad_input_is_named(change, error, message):
    merged = make_case([3, 2], 6, 4, torch.float32, plain=True) | {"offsets": offsets_of([3, 2])} | change
    with pytest.raises(error, match=message):
        scan(merged, offsets=merged["offsets"])


def test_other_bad_calls_are_named():
    case = make_case([4], 6, 4, torch.float32, plain=True)
    with pytest.raises(ConfigError, match="euler"):
        scan(case, discretization="eulr")
    with pytest.raises(ShapeError, match="packed"):
        selective_scan(*(x if k == "A" else x[None] for k, x in case.items()), offsets=offsets_of([4]))


def test_nan_in_delta_flows_through():
    case = make_case([4], 6, 4, torch.float32, plain=True)
    case["delta"][2, 1] = float("nan")
    y = scan(case)
    assert y[2:, 1].isnan().all()
    assert not y[:2].isnan().any()
    assert not y[:, [0, 2, 3, 4, 5]].isnan().any()


def test_slow_path_warns_once_and_names_the_reason(monkeypatch):
    case = make_case([4, 2], 3, 2)
    expected = scan(case, offsets=offsets_of([4, 2]))
    monkeypatch.setattr(dispatch, "NUMBA", False)
    dispatch.warn_slow.cache_clear()
    with pytest.warns(SlowPathWarning, match="selective_scan") as caught:
        actual = [scan(case, offsets=offsets_of([4, 2])) for _ in range(2)]
    assert len(caught) == 1
    assert_close_rmse(actual[0], expected)
    with pytest.raises(DataError, match="A\\[0, 0\\]"):
        scan(case | {"A": -case["A"]}, offsets=offsets_of([4, 2]))


def test_paths_are_described():
    rows = describe_paths()
    assert ("selective_scan on cpu", "numba") in [row[:2] for row in rows]
    assert all(len(row) == 3 and all(row) for row in rows)
