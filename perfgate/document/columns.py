"""Whether the columns of blocks fit together: as many entries as blocks, as many samples as calls, no time below zero."""

from __future__ import annotations

from perfgate.document.run import BlockColumns


def misfit(columns: BlockColumns) -> str | None:
    """Return what does not fit, None where all does; samples are counted by their announcement, not unpacked."""
    blocks = len(columns.calls)
    whole = (columns.quad, columns.sequence, columns.start_ns, columns.end_ns)
    counted = (columns.involuntary_switches, columns.minor_faults)
    seen = (columns.seen_ns, columns.run_delay_ns, columns.used_ns, columns.out_of_turn_ns, columns.waited_ns,
            columns.asked_ns, columns.conductor_delay_ns, columns.took_ns, columns.took_delay_ns)  # fmt: skip
    of_hardware = (columns.instructions, columns.cycles, columns.cache_misses)
    reported = (columns.throttled, columns.clock_share, columns.foreign_processes)
    if not blocks:
        return "columns without a block"
    if any(len(column) != blocks for column in (*whole, *counted)):
        return f"columns of different lengths, where {blocks} blocks ran"
    if any(len(column) not in (0, blocks) for column in (*seen, *of_hardware, *reported)):
        return f"a column of what was seen of {blocks} blocks has another length"
    if min(columns.calls) < 1:
        return "a block without a call"
    if columns.wall.count != sum(columns.calls) or columns.cpu.count != sum(columns.calls):
        return "not one sample a call"
    if any(stage.wall.count != sum(columns.calls) for stage in columns.stages):
        return "not one sample a call of every stage"
    if any(end <= start for start, end in zip(columns.start_ns, columns.end_ns)):
        return "a block that ends before it starts"
    if any(value < 0 for column in seen for value in column):
        return "a time below zero"
    if any(value < 0 for column in of_hardware for value in column):
        return "a count below zero"
    return None
