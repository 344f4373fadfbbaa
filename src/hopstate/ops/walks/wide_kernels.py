# mypy: ignore-errors
"""Steps of token building on several numbers at once, for processors that can gather, compare and pack in one go.

Written as vectors of LLVM, which any processor can run; only where packing is one instruction (AVX-512 VBMI2) are they
faster than a loop, so `WIDE` says whether to use them. Imported by `subgraph_kernels.py`.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from hopstate.ops.cpu.simd import target_has

WIDE = target_has("avx512vbmi2")
PLACES, NEIGHBOURS = 16, 8  # numbers at once
HASH = 2654435769  # an odd multiplier; the highest bits of the product, modulo 2**32, are the slot
_SHORT, _INT, _LONG = (ir.IntType(bits) for bits in (16, 32, 64))


def _data(context, builder, signature, arguments, which):
    return make_array(signature.args[which])(context, builder, arguments[which]).data


def _lanes(kind, n):
    return ir.Constant(ir.VectorType(kind, n), list(range(n)))


def _all(builder, value, n):
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


def _gather(builder, data, index, active, n):
    """Return data[index] where active, else 0."""
    item = data.type.pointee
    size = ir.Constant(index.type, [item.width // 8] * n)
    start = _all(builder, builder.ptrtoint(data, _LONG), n)
    pointers = builder.inttoptr(builder.add(start, builder.mul(index, size)), ir.VectorType(data.type, n))
    kind, alignment = ir.VectorType(item, n), ir.Constant(_INT, item.width // 8)
    name, rest = f"llvm.masked.gather.v{n}i{item.width}.v{n}p0", ir.Constant(kind, [0] * n)
    return _call(builder, name, kind, pointers, alignment, active, rest)


def _marks(builder, mark, group, which, places, active, n):
    """Return mark[places * group + which]; group is a power of two."""
    wide = ir.VectorType(_LONG, n)
    index = builder.mul(builder.zext(places, wide), ir.Constant(wide, [group] * n))
    return _gather(builder, builder.gep(mark, [which]), index, active, n)


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


def make_held(probes):
    """Return the step that looks neighbours up in a hash table, in which each stands at most probes - 1 slots on."""

    @intrinsic
    def held(typing, mark, shift, table, start, left, base, count, target, used):
        """Append the rows of those of the next NEIGHBOURS neighbours that the table holds for this token; how many.

        Neighbours table[start:start + left]; entries of mark are place * 2**32 + row + 1, base is the first row + 1.
        """
        signature = types.int64(mark, types.int64, table, *[types.int64] * 4, target, types.int64)

        def codegen(context, builder, signature, arguments):
            n, (_, shift, _, start, left, base, count, _, used) = NEIGHBOURS, arguments
            wide = ir.VectorType(_LONG, n)
            size = make_array(signature.args[0])(context, builder, arguments[0]).nitems
            mark, table, target = (_data(context, builder, signature, arguments, i) for i in (0, 2, 7))
            active = _first(builder, left, n)
            places = _load(builder, builder.gep(table, [start]), active, n)
            slots = builder.mul(places, ir.Constant(places.type, [HASH] * n))
            slots = builder.zext(builder.lshr(slots, _all(builder, builder.trunc(shift, _INT), n)), wide)
            last = _all(builder, builder.sub(size, ir.Constant(_LONG, 1)), n)
            first = builder.shl(builder.zext(places, wide), ir.Constant(wide, [32] * n))
            first, count = builder.or_(first, _all(builder, base, n)), _all(builder, count, n)
            rows, chosen = ir.Constant(wide, [0] * n), ir.Constant(active.type, [0] * n)
            for probe in range(probes):
                at = builder.and_(builder.add(slots, ir.Constant(wide, [probe] * n)), last)
                found = builder.sub(_gather(builder, mark, at, active, n), first)
                hit = builder.and_(active, builder.icmp_unsigned("<", found, count))
                rows, chosen = builder.select(hit, found, rows), builder.or_(chosen, hit)
            rows = builder.trunc(rows, ir.VectorType(_SHORT, n))
            return _pack(builder, rows, builder.gep(target, [used]), chosen, n)

        return signature, codegen

    return held


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
