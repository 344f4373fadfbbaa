"""What stands for the neighbors that a batch of a graph lacks.

What they last sent (`gas`), or combinations of the batch's own nodes (`top`): either makes of (graph, cutter, nodes)
what a model convolves over.
"""
