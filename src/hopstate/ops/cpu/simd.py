# mypy: ignore-errors
"""Sixteen-lane vectors inside numba kernels: load, store, fused multiply-add, and a fixed-order sum.

numba leaves vectorisation to LLVM, which gives up where many arrays might overlap and calls a scalar `exp` per lane.
Here a vector is a type of its own (an LLVM ``<16 x float>`` or ``<16 x double>``), so every line of a kernel is one
vector instruction per register: one AVX-512, two AVX2 or four NEON registers hold the sixteen lanes. The order of
every sum is written down, so results are the same on each run and for each number of threads.

A wide vector is WIDE of these end to end, which makes every line WIDE independent instructions: a long chain of
dependent ones, as of `simd_math.exp_parts`, otherwise fills the processor's queue and waits for itself.

Imported only by kernel modules, which are imported lazily: this file, `simd_math` and `processor` need numba at once.
"""

import operator

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, overload, register_model
from numba.np.arrayobj import make_array

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
    """A vector is held in registers: one LLVM value."""

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
    """The first count of sixteen elements; zero in the other lanes, whose memory is not touched."""
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
def spread(typingctx, array, index):
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
