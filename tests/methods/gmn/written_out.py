"""Algorithm 1 of Graph Mamba Networks by loops over nodes, tokens, steps and edges, in float64.

It shares only the names of its weights with the library's model. The walks are given; their nodes and the edges between
them are computed here.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Algorithms 1 and 2, equations 3, 8 and 9; Bresson & Laurent 2017
(GatedGCN); Tönshoff et al. 2023, arXiv:2102.08786 (random-walk features).
"""

import torch


class WrittenOut:
    """One network on one graph.

    Args:
        p: weights by name, and buffers.
        neighbours: per node, a dict from each node that it receives from to the number of that edge.
        settings: dict of what the configuration says: local, local_layers, token_layers, node_layers, mpnn_layers,
            node_token, readout, window, pooling, reading.
    """

    def __init__(self, p, neighbours, settings):
        self.p, self.neighbours, self.c = p, neighbours, settings

    def run(self, x, e, walks, order):
        """Return one row of outputs per node.

        Args:
            x: rows of features. e: rows of edge features, or None.
            walks: walks[v] is a list of tokens, far ones first and the node itself last; a token is a list of walks.
            order: the nodes in the order of the sequence.
        """
        return torch.stack([self.head(self.layer_norm("norm", row)) for row in self.rows(x, e, walks, [order])])

    def run_graphs(self, x, e, walks, orders):
        """Return one row of outputs per graph; `orders` has the nodes of each in the order of its sequence."""
        y, out = [self.layer_norm("norm", row) for row in self.rows(x, e, walks, orders)], []
        for order in orders:
            own = self.head(self.read([y[v] for v in order], y[0]))
            if "features.weight" in self.p:
                own = own + self.linear("features", self.read([x[v] for v in order], x[0]))
            out.append(own)
        return torch.stack(out)

    def read(self, rows, like):
        """Pool a graph's rows to one, with the width of `like` or, for all poolings, three times its width."""
        if not rows:
            rows = [torch.zeros_like(like)]
        every = {"mean": sum(rows) / len(rows), "sum": sum(rows), "max": torch.stack(rows).amax(0)}
        return torch.cat(list(every.values())) if self.c["reading"] == "all" else every[self.c["reading"]]

    def rows(self, x, e, walks, orders):
        """Return the row of each node before the last norm."""
        nodes = range(len(self.neighbours))
        h = [self.linear("embed", x[v]) for v in nodes]
        edges = None if e is None or not walks[0] else [self.linear("embed_edge", row) for row in e]
        y = [self.node(v, h, edges, walks[v]) for v in nodes]
        for number in range(self.c["node_layers"]):
            for order in orders:
                rows = self.block(f"node_blocks.{number}", [y[v] for v in order])
                for place, v in enumerate(order):
                    y[v] = rows[place]
        if self.c["mpnn_layers"]:
            psi = self.psi(x, e)
            y = [a + b for a, b in zip(y, psi, strict=True)]
        return y

    # ---- Algorithm 1, lines 11 to 16 ---------------------------------------------------------------------
    def node(self, v, h, edges, tokens):
        """Return the encoding of node v from its tokens."""
        if not self.c["node_token"]:
            tokens = tokens[:-1]
        encode = self.of_walks if self.c["local"] == "rwf" else self.of_subgraph
        rows = [h[v]] if len(tokens) == 0 else [encode(v, token, h, edges) for token in tokens]
        for number in range(self.c["token_layers"]):
            rows = self.block(f"token_blocks.{number}", rows)
        return rows[-1] if self.c["readout"] == "last" else sum(rows) / len(rows)

    def start(self, v, u, h):
        """Return the initial row of node u in a token of v."""
        return h[u] + self.p["mark.vector"] if u == v and "mark.vector" in self.p else h[u]

    def of_subgraph(self, v, token, h, edges):
        """Return GatedGCN on the subgraph that a token's nodes induce, pooled over them."""
        visited = sorted({u for walk in token for u in walk})
        rows = {u: self.start(v, u, h) for u in visited}
        pairs = {(u, w): number for u in visited for w, number in self.neighbours[u].items() if w in rows}
        states = None if edges is None else {pair: edges[number] for pair, number in pairs.items()}
        for number in range(self.c["local_layers"]):
            last = number == self.c["local_layers"] - 1
            rows, states = self.gated(f"local.mpnn.blocks.{number}", rows, pairs, states, self.layer_norm, last)
        return self.pooled(list(rows.values()))

    def pooled(self, rows):
        """Return one row of a token's rows: their mean or maximum."""
        return sum(rows) / len(rows) if self.c["pooling"] == "mean" else torch.stack(rows).amax(0)

    def of_walks(self, v, token, h, edges):
        """Return the random-walk features of a token, pooled over the steps of all its walks."""
        p, window, out = self.p, self.c["window"], []
        for walk in token:
            z = []
            for t, u in enumerate(walk):
                same = [float(j <= t and walk[t - j] == u) for j in range(1, window + 1)]
                near = [float(j <= t and u in self.neighbours[walk[t - j]]) for j in range(1, window + 1)]
                row = self.start(v, u, h) + self.linear("local.encoder.bits", torch.tensor(same + near).to(h[0]))
                if edges is not None and t and walk[t - 1] != u:
                    row = row + p["local.encoder.edge.weight"] @ edges[self.neighbours[walk[t - 1]][u]]
                z.append(row.clamp(min=0))
            z = self.convolved("local.encoder.conv", z)
            out.extend(self.silu(self.batch_norm("local.encoder.norm", row)) for row in z)
        return self.linear("local.encoder.out", self.pooled(out))

    # ---- Algorithm 2 ---------------------------------------------------------------------------------------
    def block(self, name, rows):
        """Return the rows after a bidirectional block."""
        z = [self.layer_norm(f"{name}.norm", row) for row in rows]
        forward = self.branch(f"{name}.branches.0", z)
        backward = self.branch(f"{name}.branches.1", z[::-1])[::-1]
        return [row + self.linear(f"{name}.out", a + b) for row, a, b in zip(rows, forward, backward, strict=True)]

    def branch(self, name, z):
        """Return one direction of equation 8."""
        p, inner = self.p, self.p[f"{name}.D"].shape[0]
        both = [p[f"{name}.input.weight"] @ row for row in z]
        u = [self.silu(row) for row in self.convolved(f"{name}.conv", [row[:inner] for row in both])]
        a = -torch.exp(p[f"{name}.A_log"])
        state, out = torch.zeros_like(a), []
        for own, gate in zip(u, [row[inner:] for row in both], strict=True):
            step = self.linear(f"{name}.step.up", p[f"{name}.step.down.weight"] @ own)
            step = torch.log(1 + torch.exp(step))
            b, c = p[f"{name}.to_B.weight"] @ own, p[f"{name}.to_C.weight"] @ own
            new = []
            for channel in range(inner):  # equation 3: zero-order hold
                decay = torch.exp(step[channel] * a[channel])
                new.append(decay * state[channel] + (decay - 1) / a[channel] * b * own[channel])
            state = torch.stack(new)
            y = state @ c + p[f"{name}.D"] * own
            out.append(p[f"{name}.output.weight"] @ (y * self.silu(gate)))
        return out

    def convolved(self, name, rows):
        """Return a causal convolution of each channel along the rows."""
        weight, out = self.p[f"{name}.weight"][:, 0], []
        taps = weight.shape[1]
        for t in range(len(rows)):
            total = self.p[f"{name}.bias"]
            for k in range(taps):
                if t - (taps - 1) + k >= 0:
                    total = total + weight[:, k] * rows[t - (taps - 1) + k]
            out.append(total)
        return out

    # ---- message passing -----------------------------------------------------------------------------------
    def psi(self, x, e):
        """Return message passing over the whole graph."""
        rows = {v: self.linear("mpnn.embed", row) for v, row in enumerate(x)}
        pairs = {(u, w): number for u, near in enumerate(self.neighbours) for w, number in near.items()}
        states = None
        if e is not None:
            states = {pair: self.linear("mpnn.embed_edge", e[number]) for pair, number in pairs.items()}
        for number in range(self.c["mpnn_layers"]):
            last = number == self.c["mpnn_layers"] - 1
            rows, states = self.gated(f"mpnn.mpnn.blocks.{number}", rows, pairs, states, self.batch_norm, last)
        return list(rows.values())

    def gated(self, name, rows, pairs, states, norm, last):
        """Return nodes and edges after a GatedGCN block; pairs are (receiver, sender)."""
        w, b = self.p[f"{name}.conv.node.weight"].chunk(4), self.p[f"{name}.conv.node.bias"].chunk(4)
        new, after = {}, None if states is None else dict(states)
        for u, row in rows.items():
            top = bottom = torch.zeros_like(row)
            for receiver, sender in pairs:
                if receiver != u:
                    continue
                gate = (w[2] @ row + b[2]) + (w[3] @ rows[sender] + b[3])
                if states is not None:
                    gate = gate + self.linear(f"{name}.conv.edge", states[u, sender])
                    if not last:
                        change = norm(f"{name}.edge_norm", gate).clamp(min=0)
                        after[u, sender] = states[u, sender] + change
                g = 1 / (1 + torch.exp(-gate))
                top, bottom = top + g * (w[1] @ rows[sender] + b[1]), bottom + g
            z = (w[0] @ row + b[0]) + top / (bottom + 1e-6)
            new[u] = row + norm(f"{name}.norm", z).clamp(min=0)
        return new, after

    # ---- small parts ---------------------------------------------------------------------------------------
    def head(self, row):
        """Return the outputs of a row after the last norm."""
        hidden = self.linear("head.0", row).clamp(min=0)
        return self.linear("head.3", hidden)

    def linear(self, name, row):
        return self.p[f"{name}.weight"] @ row + self.p[f"{name}.bias"]

    def layer_norm(self, name, row):
        centred = row - row.mean()
        return centred / torch.sqrt((centred**2).mean() + 1e-5) * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def batch_norm(self, name, row):
        scale = torch.sqrt(self.p[f"{name}.running_var"] + 1e-5)
        return (row - self.p[f"{name}.running_mean"]) / scale * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    @staticmethod
    def silu(row):
        return row / (1 + torch.exp(-row))
