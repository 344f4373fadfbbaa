# mypy: ignore-errors
"""exp, expm1 and what the scan's gradients need of them, of vectors inside numba kernels.

Of a wide vector (`simd.WIDE`) they take hardly longer than of one: each is a chain of dependent instructions.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from hopstate.ops.cpu.simd import filled, fma, multiply_add, power_of_two, where_less


def _horner(coefficients):
    """An intrinsic for the polynomial with these coefficients, constant first."""

    @intrinsic
    def polynomial(typingctx, x):
        def codegen(context, builder, signature, args):
            value = ir.Constant(args[0].type, [coefficients[-1]] * x.lanes)
            for c in reversed(coefficients[:-1]):
                value = multiply_add(builder, x, value, args[0], ir.Constant(args[0].type, [c] * x.lanes))
            return value

        return x(x), codegen

    return polynomial


# (2**r - 1) / r on [-1/2, 1/2], constant first, interpolated at Chebyshev nodes: relative error 1.3e-8 and 3e-19.
EXP2_32 = (0.69314718802622878106, 0.24022650760568126945, 0.055503571142190778186,
           0.0096180825572778514913, 0.0013390863364671234381, 0.00015453162945120690177)  # fmt: skip
EXP2_64 = (0.69314718055994530925, 0.24022650695910071233, 0.055504108664821627039, 0.0096181291076284794928,
           0.0013333558146406470697, 0.00015403530393370733411, 0.000015252733841556772589, 1.321548680870556279e-6,
           1.0178057087733941105e-7, 7.0548973041554992774e-9, 4.455817908336064493e-10,
           2.5729324177362304214e-11)  # fmt: skip

# (x exp(x) - expm1(x)) / x**2 on [-1/2, 0]: relative error 1.6e-7 and 1e-18. Nearer to zero than -1/2 the closed
# form loses digits, farther away it does not.
PHI_32 = (0.49999993931543059254, 0.33332725581813195075, 0.12490199769191515207, 0.032774989143889583301,
          0.0056185755222036421177)  # fmt: skip
PHI_64 = (0.49999999999999999964, 0.33333333333333315755, 0.12499999999998592595, 0.033333333332893548104,
          0.0069444444373910239466, 0.0011904761244127119698, 0.00017361072477750584222, 0.000022044400991970919262,
          2.4766268832720494425e-6, 2.4515113313469597464e-7, 1.8255209994157778975e-8)  # fmt: skip


def _exp_parts_of(dtype, coefficients, mantissa, lowest):
    polynomial = _horner(coefficients)
    magic, log2_e, low = 1.5 * 2.0**mantissa, float(dtype(np.log2(np.e))), float(lowest)

    @njit(forceinline=True)
    def exp_parts(x):
        least, per = filled(x, low), filled(x, log2_e)
        x = where_less(x, least, least, x)  # NaN stays NaN
        shifted = fma(x, per, filled(x, magic))  # adding 1.5 * 2**mantissa rounds to a whole number n
        n = shifted - filled(x, magic)
        r = fma(x, per, filled(x, 0.0) - n)
        q = r * polynomial(r)  # 2**r - 1
        scale = power_of_two(shifted)  # 2**n
        return fma(scale, q, scale), fma(scale, q, scale - filled(x, 1.0))

    return exp_parts


_exp_parts_32 = _exp_parts_of(np.float32, EXP2_32, 23, -86.0)
_exp_parts_64 = _exp_parts_of(np.float64, EXP2_64, 52, -700.0)
_phi_32, _phi_64 = _horner(PHI_32), _horner(PHI_64)


def exp_parts(x):
    """(exp(x), expm1(x)), both to a few units in the last place, for x <= 0 (kernels only)."""
    raise NotImplementedError("callable from numba kernels only")


def phi_series(x):
    """(x exp(x) - expm1(x)) / x**2 for -1/2 <= x <= 0 (kernels only)."""
    raise NotImplementedError("callable from numba kernels only")


@overload(exp_parts, jit_options={"forceinline": True})
def _exp_parts(x):
    chosen = _exp_parts_32 if x.scalar == types.float32 else _exp_parts_64
    return lambda x: chosen(x)  # noqa: PLW0108


@overload(phi_series, jit_options={"forceinline": True})
def _phi_series(x):
    chosen = _phi_32 if x.scalar == types.float32 else _phi_64
    return lambda x: chosen(x)  # noqa: PLW0108


@njit(forceinline=True, error_model="numpy")
def sigmoid(x):
    """1 / (1 + exp(-x)) of every lane (kernels only)."""
    zero, one = filled(x, 0.0), filled(x, 1.0)
    small, _ = exp_parts(where_less(x, zero, x, zero - x))  # exp(-|x|): never overflows
    return where_less(x, zero, small, one) / (one + small)
