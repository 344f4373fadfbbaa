"""Any torch-geometric model under TOP.

`module.top` wraps it, `layers` feeds its layers the rows of more nodes than a batch has, `degrees` gives those that
weigh by a whole graph's degrees the weights that they would have there.
"""
