# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of an evaluation of the regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genmonitor._html import columns_html, heading_html, map_html, table_html, text_html
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.text.pixel_clusters import TABLE_NOTE, finding, region_findings, region_table
from genmonitor.partition import PixelPartition


def regions_html(records: Sequence[Mapping[str, float]], partition: PixelPartition) -> str:
    """Return the last evaluation: the finding, the map, and the table of the regions, those in bold that differ.

    Args:
        records: one or more.
        partition: the regions.
    """
    found = region_findings(records, partition)
    bad = [name for name, of in found.items() if of["differs"]]
    record, body = records[-1], on_map(region_table(found), partition, bad)
    when = f"epoch {record['epoch']:g}" if "epoch" in record else ""
    return heading_html(f"{finding(record, partition)}.", when) + body + text_html(TABLE_NOTE)


def on_map(table: Table, partition: PixelPartition, bad: Sequence[str] = ()) -> str:
    """Return a table of the regions beside their map.

    Args:
        table: whose first column names the regions.
        partition: the regions.
        bad: rows to set in bold.
    """
    return columns_html(map_html(partition.labels), table_html(table.columns, table.rows, partition.regions(), bad))
