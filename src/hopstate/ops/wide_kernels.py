# mypy: ignore-errors
"""Steps of token building on several numbers at once, for processors that can gather, compare and pack in one go.

Written as vectors of LLVM, which any processor can run; only where packing is one instruction (AVX-512 VBMI2) are they
faster than a loop, so `WIDE` says whether to use them. Imported by `subgraph_kernels.py`.
"""

from __future__ import annotations

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

WIDE = bool(llvmlite.binding.get_host_cpu_features().get("avx512vbmi2", False))
PLACES, NEIGHBOURS = 16, 8  # numbers at once
_SHORT, _INT, _LONG = (ir.IntType(bits) for bits in (16, 32, 64))


def _data(context, builder, signature, arguments, which):
    return make_array(signature.args[which])(context, builder, arguments[which]).data


def _lanes(kind, n):
    return ir.Constant(ir.VectorType(kind, n), list(range(n)))


def _all(builder, value, n):
    """Return n copies of a number."""
    empty = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_INT, n), [0] * n))


def _call(builder, name, result, *arguments):
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _first(builder, left, n):
    """Return which of n lanes come before `left`."""
    return builder.icmp_signed("<", _lanes(_INT, n), _all(builder, builder.trunc(left, _INT), n))


def _load(builder, pointer, active, n):
    kind, four = ir.VectorType(_INT, n), ir.Constant(_INT, 4)
    return _call(builder, f"llvm.masked.load.v{n}i32.p0", kind, pointer, four, active, ir.Constant(kind, [0] * n))


def _marks(builder, mark, group, which, places, active, n):
    """Return mark[places * group + which]; group is a power of two."""
    wide = ir.VectorType(_LONG, n)
    index = builder.mul(builder.zext(places, wide), ir.Constant(wide, [4 * group] * n))
    start = builder.ptrtoint(builder.gep(mark, [which]), _LONG)
    pointers = builder.inttoptr(builder.add(_all(builder, start, n), index), ir.VectorType(mark.type, n))
    kind, four = ir.VectorType(_INT, n), ir.Constant(_INT, 4)
    rest = ir.Constant(kind, [0] * n)
    return _call(builder, f"llvm.masked.gather.v{n}i32.v{n}p0", kind, pointers, four, active, rest)


def _pack(builder, values, pointer, chosen, n):
    """Store the chosen values one after the other; return how many they are."""
    bits = values.type.element.width
    _call(builder, f"llvm.masked.compressstore.v{n}i{bits}.p0", ir.VoidType(), values, pointer, chosen)
    mask = ir.IntType(n)
    return builder.zext(_call(builder, f"llvm.ctpop.i{n}", mask, builder.bitcast(chosen, mask)), _LONG)


@intrinsic
def copy(typing, source, at, target, to):
    """Copy PLACES numbers of 32 bits from source[at:] to target[to:]."""
    signature = types.void(source, types.int64, target, types.int64)

    def codegen(context, builder, signature, arguments):
        source, target = (_data(context, builder, signature, arguments, i) for i in (0, 2))
        kind = ir.VectorType(_INT, PLACES).as_pointer()
        source = builder.bitcast(builder.gep(source, [arguments[1]]), kind)
        builder.store(
            builder.load(source, align=4), builder.bitcast(builder.gep(target, [arguments[3]]), kind), align=4
        )
        return context.get_dummy_value()

    return signature, codegen


def make(group):
    """Return the two steps for marks that lie group by group: `first_seen` and `inside`."""

    @intrinsic
    def first_seen(typing, mark, which, seen, start, k, total, nodes, count):
        """Append those of the next PLACES places that their mark says were first seen here; return how many.

        Places seen[start + k:start + total], marks mark[place * group + which], of which k is the first's value.
        """
        signature = types.int64(mark, types.int64, seen, *[types.int64] * 3, nodes, types.int64)

        def codegen(context, builder, signature, arguments):
            n, (_, which, _, start, k, total, _, count) = PLACES, arguments
            mark, seen, nodes = (_data(context, builder, signature, arguments, i) for i in (0, 2, 6))
            active = _first(builder, builder.sub(total, k), n)
            places = _load(builder, builder.gep(seen, [builder.add(start, k)]), active, n)
            marks = _marks(builder, mark, group, which, places, active, n)
            own = builder.add(_all(builder, builder.trunc(k, _INT), n), _lanes(_INT, n))
            chosen = builder.and_(active, builder.icmp_signed("==", marks, own))
            return _pack(builder, places, builder.gep(nodes, [count]), chosen, n)

        return signature, codegen

    @intrinsic
    def inside(typing, mark, which, table, start, left, least, target, used):
        """Append the rows of those of the next NEIGHBOURS neighbours that are marked with least or more; how many.

        Neighbours table[start:start + left], marks mark[place * group + which], rows counted from least.
        """
        signature = types.int64(mark, types.int64, table, *[types.int64] * 3, target, types.int64)

        def codegen(context, builder, signature, arguments):
            n, (_, which, _, start, left, least, _, used) = NEIGHBOURS, arguments
            mark, table, target = (_data(context, builder, signature, arguments, i) for i in (0, 2, 6))
            active = _first(builder, left, n)
            places = _load(builder, builder.gep(table, [start]), active, n)
            marks = _marks(builder, mark, group, which, places, active, n)
            lowest = _all(builder, builder.trunc(least, _INT), n)
            chosen = builder.and_(active, builder.icmp_signed(">=", marks, lowest))
            rows = builder.trunc(builder.sub(marks, lowest), ir.VectorType(_SHORT, n))
            return _pack(builder, rows, builder.gep(target, [used]), chosen, n)

        return signature, codegen

    return first_seen, inside
