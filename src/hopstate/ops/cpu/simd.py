# mypy: ignore-errors
"""Sixteen-lane vectors inside numba kernels: load, store, fused multiply-add, and a fixed-order sum.

numba leaves vectorisation to LLVM, which gives up where many arrays might overlap and calls a scalar `exp` per lane.
Here a vector is an LLVM ``<16 x float>`` or ``<16 x double>``, stored in one AVX-512, two AVX2 or four NEON registers.
The order of each sum is fixed, so results do not depend on the run or the number of threads.

A wide vector is WIDE of these. It gives WIDE independent instructions per line, which hides the latency of dependent
chains such as `exp_parts`.

This module imports numba. Only lazily imported kernel modules import it.
"""

import operator

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, overload, register_model
from numba.np.arrayobj import make_array


def _prefetch_of(write):
    @intrinsic
    def prefetch(typingctx, array, index):
        """Prefetch the cache line of a flat array's element."""

        def codegen(context, builder, signature, args):
            data = make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [pointer, number(write), number(3), number(1)])  # into all caches, data
            return context.get_dummy_value()

        return types.void(array, types.intp), codegen

    return prefetch


prefetch, prefetch_to_write = _prefetch_of(0), _prefetch_of(1)


FLUSH_TO_ZERO = 0x8040  # the bits of x86's control word that treat subnormal inputs and results as zero


def _control_word_call(builder, name, slot):
    if not builder.module.triple.startswith(("x86_64", "i386", "i686")):
        return  # other processors compute with subnormal numbers at full speed
    byte_pointer = ir.IntType(8).as_pointer()
    function_type = ir.FunctionType(ir.VoidType(), [byte_pointer])
    function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.x86.sse.{name}")
    builder.call(function, [builder.bitcast(slot, byte_pointer)])


@intrinsic
def control_word(typingctx):
    """This thread's floating-point control word; 0 where there is none."""

    def codegen(context, builder, signature, args):
        slot = cgutils.alloca_once_value(builder, ir.IntType(32)(0))
        _control_word_call(builder, "stmxcsr", slot)
        return builder.load(slot)

    return types.uint32(), codegen


@intrinsic
def set_control_word(typingctx, word):
    """Set it: with FLUSH_TO_ZERO, states and gradients that decay past 1e-38 cost no more than others."""

    def codegen(context, builder, signature, args):
        _control_word_call(builder, "ldmxcsr", cgutils.alloca_once_value(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.uint32), codegen


@njit(forceinline=True)
def scratch(size, like, stagger):
    """size numbers of like's type on a cache line of their own, so that no vector straddles two lines.

    Buffers that are walked together get different staggers: equal low address bits would make their loads wait.
    """
    line = 64 // like.itemsize
    raw = np.empty(size + (stagger + 1) * line, like.dtype)
    skip = (-(raw.ctypes.data // like.itemsize)) % line + stagger * line
    return raw[skip : skip + size]


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


LANES = 16


def target_has(feature):
    """Return whether the processor that numba compiles for has a feature: this one, or what NUMBA_CPU_NAME says."""
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return bool(binding.get_host_cpu_features().get(feature))


# Vectors of a wide one: AVX-512 has registers to spare for four; elsewhere the sixteen lanes are several already.
WIDE = 4 if target_has("avx512f") else 1


class VectorType(types.Type):
    """numba's type of so many lanes of one scalar type."""

    def __init__(self, scalar, lanes=LANES):
        self.scalar, self.lanes = scalar, lanes
        super().__init__(name=f"Vector({scalar}, {lanes})")


def _ir_scalar(scalar):
    return ir.FloatType() if scalar == types.float32 else ir.DoubleType()


def _ir_vector(vector):
    return ir.VectorType(_ir_scalar(vector.scalar), vector.lanes)


def _suffix(vector):
    return f"v{vector.lanes}f{vector.scalar.bitwidth}"


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """Data model of a vector: one LLVM value."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _ir_vector(fe_type))


def _call(builder, name, result, operands):
    function_type = ir.FunctionType(result, [x.type for x in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), operands)


def _splat_value(builder, value, lanes_type):
    empty = ir.Constant(lanes_type, ir.Undefined)
    index = ir.Constant(ir.VectorType(ir.IntType(32), lanes_type.count), [0] * lanes_type.count)
    return builder.shuffle_vector(builder.insert_element(empty, value, ir.IntType(32)(0)), empty, index)


def _pointer(context, builder, array_type, array, index, vector):
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _ir_vector(vector).as_pointer())


def _load_of(lanes):
    @intrinsic
    def load(typingctx, array, index):
        def codegen(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], *args, signature.return_type)
            return builder.load(pointer, align=signature.args[0].dtype.bitwidth // 8)

        return VectorType(array.dtype, lanes)(array, types.intp), codegen

    return load


load, load_wide = _load_of(LANES), _load_of(WIDE * LANES)


@intrinsic
def store(typingctx, array, index, value):
    """Write a vector to consecutive elements of a flat array."""
    signature = types.void(array, types.intp, value)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], signature.args[2])
        builder.store(args[2], pointer, align=signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature, codegen


def _mask(builder, count):
    """<16 x i1>, true in the first count lanes."""
    narrow = builder.trunc(count, ir.IntType(32))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat_value(builder, narrow, lanes.type))


@intrinsic
def load_first(typingctx, array, index, count):
    """Load the first count of sixteen elements; the other lanes are zero and not read."""
    signature = VectorType(array.dtype)(array, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        result = signature.return_type
        vector = _ir_vector(result)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], result)
        align = ir.IntType(32)(result.scalar.bitwidth // 8)
        zero = ir.Constant(vector, [0.0] * LANES)
        operands = [pointer, align, _mask(builder, args[2]), zero]
        return _call(builder, f"llvm.masked.load.{_suffix(result)}.p0", vector, operands)

    return signature, codegen


@intrinsic
def store_first(typingctx, array, index, value, count):
    signature = types.void(array, types.intp, value, types.intp)

    def codegen(context, builder, signature, args):
        vector = signature.args[2]
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], vector)
        align = ir.IntType(32)(vector.scalar.bitwidth // 8)
        operands = [args[2], pointer, align, _mask(builder, args[3])]
        _call(builder, f"llvm.masked.store.{_suffix(vector)}.p0", ir.VoidType(), operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def splat(typingctx, value):
    """The same number in every lane."""
    signature = VectorType(value)(value)

    def codegen(context, builder, signature, args):
        return _splat_value(builder, args[0], _ir_vector(signature.return_type))

    return signature, codegen


@intrinsic
def repeat(typingctx, value):
    """A wide vector of WIDE copies of a vector."""

    def codegen(context, builder, signature, args):
        index = ir.VectorType(ir.IntType(32), WIDE * LANES)
        empty = ir.Constant(args[0].type, ir.Undefined)
        return builder.shuffle_vector(args[0], empty, ir.Constant(index, list(range(LANES)) * WIDE))

    return VectorType(value.scalar, WIDE * LANES)(value), codegen


@intrinsic
def broadcast_lanes(typingctx, array, index):
    """A wide vector of WIDE consecutive elements of a flat array, each in every lane of one of its vectors."""

    def codegen(context, builder, signature, args):
        data = make_array(signature.args[0])(context, builder, args[0]).data
        lanes, numbers = ir.IntType(32), ir.VectorType(_ir_scalar(signature.args[0].dtype), WIDE)
        pointer = builder.bitcast(builder.gep(data, [args[1]]), numbers.as_pointer())
        value = builder.load(pointer, align=signature.args[0].dtype.bitwidth // 8)
        places = [i for i in range(WIDE) for _ in range(LANES)]
        place = ir.Constant(ir.VectorType(lanes, WIDE * LANES), places)
        return builder.shuffle_vector(value, ir.Constant(numbers, ir.Undefined), place)

    return VectorType(array.dtype, WIDE * LANES)(array, types.intp), codegen


@intrinsic
def filled(typingctx, like, value):
    """value in every lane, in the scalar type of the vector like."""
    signature = like(like, types.float64)

    def codegen(context, builder, signature, args):
        scalar = _ir_scalar(signature.args[0].scalar)
        value = args[1] if scalar == args[1].type else builder.fptrunc(args[1], scalar)
        return _splat_value(builder, value, args[0].type)

    return signature, codegen


def multiply_add(builder, vector, a, b, c):
    return _call(builder, f"llvm.fmuladd.{_suffix(vector)}", _ir_vector(vector), [a, b, c])


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, fused where the machine can."""
    signature = a(a, a, a)

    def codegen(context, builder, signature, args):
        return multiply_add(builder, signature.args[0], *args)

    return signature, codegen


def _binary(method):
    @intrinsic
    def operation(typingctx, a, b):
        def codegen(context, builder, signature, args):
            return getattr(builder, method)(*args)

        return a(a, b), codegen

    return operation


_add, _sub, _mul, _div = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _register(symbol, operation):
    @overload(symbol)
    def typed(a, b):
        if isinstance(a, VectorType) and a == b:
            return lambda a, b: operation(a, b)  # noqa: PLW0108 (numba reads its arguments' names)
        return None


for _symbol, _operation in (
    (operator.add, _add),
    (operator.sub, _sub),
    (operator.mul, _mul),
    (operator.truediv, _div),
):
    _register(_symbol, _operation)


@intrinsic
def where_less(typingctx, a, b, yes, no):
    """Per lane: yes where a < b, else no (also where a or b is NaN)."""
    signature = yes(a, b, yes, no)

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return signature, codegen


@intrinsic
def power_of_two(typingctx, shifted):
    """2**n from the low bits of n + 1.5 * 2**(mantissa bits), put straight into the exponent field."""
    signature = shifted(shifted)

    def codegen(context, builder, signature, args):
        bits, lanes = signature.args[0].scalar.bitwidth, signature.args[0].lanes
        mantissa, one = (23, 0x3F800000) if bits == 32 else (52, 0x3FF0000000000000)
        integers = ir.VectorType(ir.IntType(bits), lanes)
        raw = builder.bitcast(args[0], integers)
        moved = builder.shl(raw, ir.Constant(integers, [mantissa] * lanes))
        return builder.bitcast(builder.add(moved, ir.Constant(integers, [one] * lanes)), args[0].type)

    return signature, codegen


def _fold(builder, value, width):
    """Add halves pairwise until so many lanes are left: a fixed order."""
    while value.type.count > width:
        half = value.type.count // 2
        index = ir.VectorType(ir.IntType(32), half)
        empty = ir.Constant(value.type, ir.Undefined)
        low = builder.shuffle_vector(value, empty, ir.Constant(index, list(range(half))))
        high = builder.shuffle_vector(value, empty, ir.Constant(index, list(range(half, 2 * half))))
        value = builder.fadd(low, high)
    return value


@intrinsic
def lane_sum(typingctx, a):
    def codegen(context, builder, signature, args):
        return builder.extract_element(_fold(builder, args[0], 1), ir.IntType(32)(0))

    return a.scalar(a), codegen


@intrinsic
def narrow(typingctx, a):
    """Sum of the vectors of a wide one."""

    def codegen(context, builder, signature, args):
        return _fold(builder, args[0], LANES)

    return VectorType(a.scalar)(a), codegen
