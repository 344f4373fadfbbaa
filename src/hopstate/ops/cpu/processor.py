# mypy: ignore-errors
"""What kernels ask of the processor besides arithmetic: aligned buffers, prefetches, subnormal numbers as zero."""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _prefetch_of(write):
    @intrinsic
    def prefetch(typingctx, array, index):
        """Ask for the cache line of a flat array's element; changes nothing but the time that its use takes later."""

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
