"""What the packages of several methods share.

Reading, splits and settings of nodes and of links; edges; floors; classes of nodes at events; settings that suit the
data; backbones trained before.
"""
