"""Trees over the histories of pairs: features, how trees are grown and kept, and the method; see README.md."""

# names of methods → the module here that defines them
METHODS = {"pair-trees": "method"}
RECIPES = ("recipes",)
