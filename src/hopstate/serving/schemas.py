"""Schemas of requests and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from hopstate.errors import DataError

Id = Annotated[StrictStr, Field(pattern="^[^\\x00]*$")] | StrictInt  # no id holds NUL, which numpy's texts drop
Time = StrictInt | StrictFloat | StrictStr


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Refused(BaseModel):
    """Why a request was refused: `error` in a sentence, or `detail` where it does not fit the description."""

    error: str | None = None
    detail: list[dict[str, Any]] | None = None


class ReceiptOut(BaseModel):
    """What became of an event.

    `position` in the log, null of one that was kept aside; `score` from what came before it; `again` where its id was
    known; `note` says why it was kept aside ("late", "ahead"), or that what came before under its id "differs".
    """

    position: int | None
    score: float | None
    again: bool
    note: str | None = None


class EventsOut(BaseModel):
    """Receipts in the order of the events; `ignored` names fields that the run does not read, where such are taken."""

    receipts: list[ReceiptOut]
    position: int
    ignored: list[str] | None = None


class EventsIn(_Strict):
    """Events in order of time, with the columns of the run's own file and perhaps an `event_id` each.

    With `score` false they are stored and not scored, which is quicker.
    """

    events: list[dict[str, Any]] = Field(min_length=1)
    score: StrictBool = True


class RankIn(_Strict):
    """The most likely next partners of a source; fields as the arguments of `hopstate.rank`."""

    source: Id
    top: StrictInt = Field(default=10, ge=1, le=10_000)
    time: Time | None = None
    candidates: list[Id] | None = Field(default=None, min_length=1)
    new_only: StrictBool = False
    explain: StrictBool = False


class UnknownModelError(DataError):
    """A model was asked for that is not here."""


class Tensor(BaseModel):
    """A column of a request of the Open Inference Protocol."""

    name: StrictStr
    shape: list[StrictInt]
    datatype: StrictStr
    data: list[Any]


class InferIn(BaseModel):
    """A request of the Open Inference Protocol: columns source, target and perhaps time."""

    id: StrictStr | None = None
    inputs: list[Tensor]

    def pairs(self) -> tuple[list[tuple[Any, Any]], list[Any] | None]:
        """Return pairs and their times, None where none are given.

        Raises:
            DataError: columns are missing, unknown or of different lengths.
        """
        columns = {one.name: one for one in self.inputs}
        unknown = sorted(columns.keys() - {"source", "target", "time"})
        if unknown or len(columns) < len(self.inputs) or not {"source", "target"} <= columns.keys():
            found = ", ".join(one.name for one in self.inputs)
            raise DataError(f"inputs are source, target and perhaps time, once each; got {found or 'none'}")
        lengths = {len(one.data) for one in columns.values()}
        for name, one in columns.items():
            if one.shape not in ([len(one.data)], [len(one.data), 1]):
                raise DataError(f"input {name} has {len(one.data)} values and says shape {one.shape}")
            kinds = (str, int) if name != "time" else (str, int, float)
            wrong = [v for v in one.data if not isinstance(v, kinds) or isinstance(v, bool)]
            wrong += [v for v in one.data if isinstance(v, str) and "\0" in v]
            if wrong:
                raise DataError(f"input {name} holds {wrong[0]!r}, which is none")
        if len(lengths) > 1 or lengths == {0}:
            raise DataError(f"inputs are of lengths {sorted(lengths)}; give as many of each, at least one")
        pairs = list(zip(columns["source"].data, columns["target"].data, strict=True))
        return pairs, columns["time"].data if "time" in columns else None
