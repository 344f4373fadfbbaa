# mypy: ignore-errors
"""Compiled token building: the nodes that walks visit, each once, and the edges among them. Imported by `walks.py`.

Walks of a few nodes are drawn into a buffer that stays in cache and turned into tokens there. Which nodes a token
holds is looked up in an array over all places where that is small, else in a hash table; neither is cleared between
tokens, because an entry of an earlier token holds a smaller row.

Of an array over places, four tokens have a mark each, side by side: all four are marked, then all four are
read, since vectors that read what has just been written one by one wait until it has reached the cache.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from hopstate.ops.cpu.random_kernels import seeded
from hopstate.ops.cpu.simd import prefetch, target_has
from hopstate.ops.walks.kernels import LINE, advance

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


def make_hash_lookup(probes):
    """Return a step that looks up neighbors in a hash table with up to `probes` probes."""

    @intrinsic
    def lookup(typing, mark, shift, table, start, left, base, count, target, used):
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

    return lookup


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


NODES = 32  # nodes whose walks are drawn together
GROUP = 4  # tokens that go through each step together, a power of two
_GROUP = np.uint64(GROUP)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)
first_seen, inside = make(GROUP)
lookup_one_slot, lookup_two_slots = make_hash_lookup(1), make_hash_lookup(2)


@njit(cache=True, nogil=True)
def _grown(array, used, needed, done, total):
    if used + needed <= array.size:
        return array
    likely = int(1.1 * (used + needed) * total / done)  # untouched memory costs nothing, copies do
    if done < 64:  # too few for an estimate
        likely = min(likely, 1 << 15)
    larger = np.empty(max(used + needed, likely), array.dtype)
    larger[:used] = array[:used]
    return larger


@njit(cache=True, nogil=True)
def _mark_first(mark, which, seen, start, total):
    """Mark the places seen[start:start + total] with where they were first seen, from 0."""
    for k in range(total):  # backwards, so that the first of equal places has the last word
        i = np.uint64(total - 1 - k)
        mark[np.uint64(seen[np.uint64(start) + i]) * _GROUP + np.uint64(which)] = i


@njit(cache=True, nogil=True)
def _distinct(mark, which, seen, start, total, first, nodes, wide):
    """Write the marked places, each once, to nodes[first:], in order; return where they end."""
    nodes[np.uint64(first)] = seen[np.uint64(start)]
    count = np.int64(first) + 1
    if wide:
        for k in range(1, total, PLACES):
            count += first_seen(mark, which, seen, start, k, total, nodes, count)
        return count
    for k in range(1, total):
        s = seen[np.uint64(start + k)]
        nodes[np.uint64(count)] = s
        count += mark[np.uint64(s) * _GROUP + np.uint64(which)] == k
    return count


@njit(cache=True, nogil=True)
def _mark_rows(mark, which, first, last, nodes):
    for k in range(first, last):
        mark[np.uint64(nodes[np.uint64(k)]) * _GROUP + np.uint64(which)] = k


@njit(cache=True, nogil=True)
def _edges_direct(mark, which, first, last, nodes, table, used, degree, target, position, wide):
    """Append the edges among nodes[first:last], places that become ids; branch-free in the neighbors."""
    at, keep, least = np.uint64(used), position.size > 0, np.int32(first)
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        lo, before = s + _TWO, at
        hi = lo + np.uint64(table[s + _ONE])
        if wide and not keep:
            for j in range(lo, hi, NEIGHBOURS):
                at += np.uint64(inside(mark, which, table, j, np.int64(hi - j), first, target, at))
        else:
            for j in range(lo, hi):
                row = mark[np.uint64(table[j]) * _GROUP + np.uint64(which)]
                target[at] = row - least
                if keep:
                    position[at] = j
                at += np.uint64(row >= least)
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _slot(key, shift):
    return ((np.uint64(key) * np.uint64(HASH)) & _LOW) >> np.uint64(shift)


@njit(cache=True, nogil=True)
def _distinct_hashed(mark, shift, seen, start, total, first, nodes, table):
    """Write the distinct places to nodes[first:] in order, and their rows + 1 to a hash table.

    Returns their end, and the maximum distance of an entry from its hash slot.
    """
    size, count, far = np.uint64(mark.size - 1), first, np.uint64(0)
    for i in range(start, start + total):
        s = np.uint64(seen[i])
        own = slot = _slot(s, shift)
        while (mark[slot] & _LOW) > np.uint64(first) and (mark[slot] >> _32) != s:
            slot = (slot + _ONE) & size
        if (mark[slot] & _LOW) <= np.uint64(first):  # stale: of an earlier token, or never used
            nodes[count] = seen[i]
            count += 1
            prefetch(table, s)  # for its edges
            prefetch(table, s + LINE)
            mark[slot] = (s << _32) | np.uint64(count)
            far = max(far, (slot - own) & size)
    return count, np.int64(far)


@njit(cache=True, nogil=True)
def _edges_hashed_wide(mark, shift, far, first, last, nodes, table, used, degree, target):
    """As `_edges_without_collisions`, vectorized; every entry is at most one slot away from its hash."""
    at, base, count = np.uint64(used), first + 1, last - first
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        lo, before = s + _TWO, at
        hi = lo + np.uint64(table[s + _ONE])
        if far:
            for j in range(lo, hi, NEIGHBOURS):
                at += np.uint64(lookup_two_slots(mark, shift, table, j, np.int64(hi - j), base, count, target, at))
        else:
            for j in range(lo, hi, NEIGHBOURS):
                at += np.uint64(lookup_one_slot(mark, shift, table, j, np.int64(hi - j), base, count, target, at))
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _edges_without_collisions(mark, shift, first, last, nodes, table, used, degree, target, position):
    """As `_edges_direct`, if each hash lookup needs one probe."""
    at, keep, base, count = np.uint64(used), position.size > 0, np.uint64(first + 1), np.uint64(last - first)
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        before = at
        for j in range(s + _TWO, s + _TWO + np.uint64(table[s + _ONE])):
            key = np.uint64(table[j])
            row = mark[_slot(key, shift)] - ((key << _32) | base)  # another place, or an earlier row: beyond count
            target[at] = row
            if keep:
                position[at] = j
            at += np.uint64(row < count)
        degree[i] = at - before
    return np.int64(at)


@njit(cache=True, nogil=True)
def _edges_hashed(mark, shift, first, last, nodes, table, used, degree, target, position, near):
    """As `_edges_direct`. Neighbors with a free slot, the usual case, are dropped first."""
    size, keep, least = np.uint64(mark.size - 1), position.size > 0, np.uint64(first)
    for i in range(first, last):
        s = np.uint64(nodes[np.uint64(i)])
        nodes[np.uint64(i)] = table[s]
        found = np.uint64(0)
        for j in range(s + _TWO, s + _TWO + np.uint64(table[s + _ONE])):
            near[found] = j
            found += np.uint64((mark[_slot(table[j], shift)] & _LOW) > least)
        before = used
        for k in range(found):
            j = np.uint64(near[k])
            key = np.uint64(table[j])
            slot = _slot(key, shift)
            while (mark[slot] & _LOW) > least:
                if (mark[slot] >> _32) == key:
                    target[used] = np.int64(mark[slot] & _LOW) - 1 - first
                    if keep:
                        position[used] = j
                    used += 1
                    break
                slot = (slot + _ONE) & size
        degree[i] = used - before
    return used


@njit(cache=True, nogil=True)
def _walk_lengths(graph, batch, names, ladder, first, repeats, per, seed, scratch, start, state):
    """Fill scratch with the walks of all lengths from the nodes of batch, those of ladder[j] from row first[j]."""
    place, table, threshold, other, weights, back, out = graph
    no_ids = np.empty((0, 0), np.int32)
    each = repeats * per
    n = batch.size * each
    for j in range(ladder.size):
        i = 0
        for k in range(batch.size):
            v, stream = batch[k], (names[k] * ladder.size + j) * each
            for w in range(each):
                start[i], state[i] = place[v], seeded(seed, stream + w)
                i += 1
        rows = scratch[first[j] : first[j + 1], :n]
        advance(table, threshold, other, weights, back, out, state[:n], ladder[j], start[:n], rows, no_ids)


@njit(cache=True, nogil=True)
def _steps(scratch, width, first, last, column, per, seen, at):
    """Write what per walks visited, rows first to last of scratch, to seen[at:], step after step; return where it ends.

    Whole vectors are copied; surplus entries are overwritten or never read.
    """
    row = first * width + column
    for _ in range(first, last):
        for w in range(0, per, PLACES):
            copy(scratch, row + w, seen, at + w)
        at, row = at + per, row + width
    return at


@njit(cache=True, nogil=True)
def _walk_by_walk(seen, start, h, per, walked, steps):
    """Append the walks that `_steps` laid out to walked, each walk's start and steps together."""
    for w in range(per):
        walked[steps] = seen[start]
        for t in range(h):
            walked[steps + t + 1] = seen[start + 1 + t * per + w]
        steps += h + 1
    return steps


@njit(cache=True, nogil=True)
def _edge_capacity(nodes, first, last, table, widest, free):
    """Return a number of edges that these nodes cannot exceed; exact only where the quick answer is above free."""
    if (last - first) * widest <= free:
        return (last - first) * widest
    capacity = 1
    for j in range(first, last):
        capacity += table[nodes[j] + _ONE]
    return capacity


@njit(cache=True, nogil=True)
def subgraphs(
    graph, batch, names, ladder, repeats, per, seed, rows, widest, loops, positions, walks, direct, bits, wide
):  # fmt: skip
    """Tokens of the nodes in batch, walks drawn by names, each node's longest walks first and the node itself last.

    ladder holds the lengths of walks, ascending. rows has room for the rows of all tokens and one more: nodes, degree
    (empty without edges), and room for some edges: target. widest is the largest degree, loops whether
    any node has an edge to itself.

    Returns token sizes, nodes (ids), each row's number of edges, their targets (rows of the token), their table
    positions, and the walks as places, each token's one after the other, each walk's steps together.
    """
    (place, table), (nodes, degree, target) = graph[:2], rows
    first = np.zeros(ladder.size + 1, np.int64)
    for j in range(ladder.size):
        first[j + 1] = first[j] + ladder[j]
    each, lengths, shift = ladder.size * repeats + 1, first[ladder.size], 32 - bits
    longest = ladder[ladder.size - 1] if ladder.size else 0
    sizes, position, edges = np.empty(batch.size * each, np.int32), np.empty(0, np.int64), degree.size > 0
    walked = np.empty(batch.size * (1 + repeats * per * (lengths + ladder.size)) if walks else 0, np.uint32)
    width, stride = min(NODES, max(1, batch.size)) * repeats * per, longest * per + 1
    flat, seen = np.empty((lengths + 1) * width + PLACES, np.uint32), np.empty(GROUP * stride + PLACES, np.uint32)
    scratch = flat[: (lengths + 1) * width].reshape(lengths + 1, width)
    start, state = np.empty(width, np.uint32), np.empty(width, np.uint64)
    mark = np.full(table.size * GROUP if direct else 0, -1, np.int32)
    hashed, near = np.zeros(0 if direct else 1 << bits, np.uint64), np.empty(widest + 1, np.uint32)
    total, bounds, far = np.empty(GROUP, np.int64), np.zeros(GROUP + 1, np.int64), 0
    group_size, token, used, steps = GROUP if direct else 1, 0, 0, 0
    for i in range(batch.size):
        if i % NODES == 0:
            end = i + NODES
            _walk_lengths(graph, batch[i:end], names[i:end], ladder, first, repeats, per, seed, scratch, start, state)
        own, begun = place[batch[i]], bounds[0]
        for lead in range(0, each, group_size):
            group = min(group_size, each - lead)
            for g in range(group):
                k, at = lead + g, g * stride
                j = ladder.size - 1 - k // repeats if k < each - 1 else -1
                lo, hi = (first[j], first[j + 1]) if j >= 0 else (0, 0)
                seen[at] = own
                column = (i % NODES * repeats + k % repeats) * per
                total[g] = _steps(flat, width, lo, hi, column, per, seen, at + 1) - at
                if direct:
                    _mark_first(mark, g, seen, at, total[g])
                if walks:
                    steps = _walk_by_walk(seen, at, hi - lo, per if hi > lo else 1, walked, steps)
            for g in range(group):
                if direct:
                    bounds[g + 1] = _distinct(mark, g, seen, g * stride, total[g], bounds[g], nodes, wide)
                else:
                    bounds[1], far = _distinct_hashed(hashed, shift, seen, 0, total[0], bounds[0], nodes, table)
                sizes[token] = bounds[g + 1] - bounds[g]
                token += 1
            if edges:
                capacity = _edge_capacity(nodes, bounds[0], bounds[group], table, widest, target.size - used)
                target = _grown(target, used, capacity, i + 1, batch.size)
                if positions:
                    position = _grown(position, used, capacity, i + 1, batch.size)
                for g in range(group if direct else 0):
                    _mark_rows(mark, g, bounds[g], bounds[g + 1], nodes)
                for g in range(group):
                    lo, hi = bounds[g], bounds[g + 1]
                    if hi - lo == 1 and not loops:
                        nodes[lo], degree[lo] = table[own], 0
                    elif direct:
                        used = _edges_direct(mark, g, lo, hi, nodes, table, used, degree, target, position, wide)
                    elif wide and far < 2 and not positions:
                        used = _edges_hashed_wide(hashed, shift, far, lo, hi, nodes, table, used, degree, target)
                    elif far == 0:
                        used = _edges_without_collisions(
                            hashed, shift, lo, hi, nodes, table, used, degree, target, position
                        )
                    else:
                        used = _edges_hashed(hashed, shift, lo, hi, nodes, table, used, degree, target, position, near)
            bounds[0] = bounds[group]
        if not edges:
            for k in range(begun, bounds[0]):
                nodes[k] = table[np.uint64(nodes[k])]
    return (
        sizes,
        nodes[: bounds[0]],
        degree[: bounds[0] if edges else 0],
        target[:used],
        position[: used if positions else 0],
        walked[:steps],
    )
