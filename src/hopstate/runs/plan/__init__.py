"""What a run of any size will take: processor time, memory and disk by stage, from measured points.

`plan` is the door; `measure` takes the points on a machine; `cost` holds the model, `stages` what it knows of methods.
"""

from hopstate.runs.plan.measured import measure
from hopstate.runs.plan.plan import Plan, plan

__all__ = ["Plan", "measure", "plan"]
