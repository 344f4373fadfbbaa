"""Trees over the histories of pairs: features, how trees are grown and kept, and the method; see README.md."""
