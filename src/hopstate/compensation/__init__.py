"""Compensation for the neighbors outside a mini-batch.

GAS (`gas`) uses their historical embeddings. TOP (`top`) expresses them by the nodes of the batch.
"""
