"""The operator type in the name of a kernel, for tables and timelines without a column
of types.
"""

from __future__ import annotations

from perfgate.trace.model.patterns import lazy_pattern

# Prefix of the type of work with a task type that no reader knows.
UNKNOWN_TASK = "task of unknown type "
_COLLECTIVE_TYPE = lazy_pattern(r"(hcom_\w+?_)_\d+_\d+(?:_\d+)?(?:@.*)?$")
_INSERTED = lazy_pattern(r"trans_([A-Za-z]\w*?)_\d+(?:_([A-Za-z]\w*))?$")
_VERSIONED = lazy_pattern(r"([A-Za-z]\w*?V\d)\d*$")
_NUMBERED = lazy_pattern(r"([A-Za-z]\w*?)\d+$")


def type_by_name(name: str) -> str:
    """The operator type contained in a kernel's name; the name itself if it contains
    none.

    ``aclnnAddmm_MatMulCommon_MatMulV2`` names call, stage and type;
    ``trans_TransData_1`` is inserted by the graph engine,
    ``Conv2DBackpropFilter6_MemSet`` before a kernel that adds up; ``Conv2D1`` is a type
    and its number; ``hcom_allReduce__586_0_1`` ends in group, index and step.
    """
    if collective := _COLLECTIVE_TYPE.match(name):
        return collective[1]
    if inserted := _INSERTED.match(name):
        return inserted[2] or inserted[1]
    if name.startswith("aclnn") or name.endswith("_MemSet"):
        return name.rpartition("_")[2] or name
    if "_" in name or "/" in name:
        return name
    numbered = _VERSIONED.match(name) or _NUMBERED.match(name)
    return numbered[1] if numbered else name
