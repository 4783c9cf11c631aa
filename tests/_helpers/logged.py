# SPDX-License-Identifier: Apache-2.0
"""Readers of what loggers wrote, and a logger that remembers."""

import json
import struct
import warnings
from pathlib import Path

from lightning.pytorch.loggers.logger import Logger
from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


class Remember(Logger):
    """Keeps what monitors give it, by step."""

    name, version, save_dir = "remember", "0", None

    def __init__(self):
        super().__init__()
        self.logged = []

    def log_hyperparams(self, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step=None):
        self.logged += [(step, metrics)] if any(key.startswith("cms/") for key in metrics) else []


def read_tensorboard(folder):
    """Return what TensorBoard would read from an event file."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def shown_by_tensorboard(markdown):
    """Return the HTML that TensorBoard makes of a text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what TensorBoard imports
        from tensorboard.plugin_util import markdown_to_safe_html
    return markdown_to_safe_html(markdown)


def read_wandb(folder):
    """Return every dictionary that an offline W&B run logged, from its .wandb file."""
    histories = [record.item for record in wandb_records(folder, "history")]
    return [{i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items} for items in histories]


def read_wandb_pages(folder, key):
    """Return the HTML that an offline W&B run logged under a key, in the order of its history."""
    (files,) = folder.glob("wandb/offline-run-*/files")
    return [(files / row[f"{key}/path"]).read_text() for row in read_wandb(folder) if f"{key}/path" in row]


def read_wandb_summary(folder):
    """Return the last summary of an offline W&B run."""
    summary = {}
    for record in wandb_records(folder, "summary"):
        for item in record.update:
            at = summary
            *parents, last = item.nested_key or [item.key]
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = json.loads(item.value_json)
    return summary


def read_wandb_tables(folder):
    """Return the tables of an offline W&B run, each with its columns and its rows, pictures being arrays in [0, 1]."""
    tables = []
    for artifact in wandb_records(folder, "artifact"):
        files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        (table,) = (json.loads(file.read_text()) for name, file in files.items() if name.endswith(".table.json"))
        rows = [[imread(files[x["path"]]) / 255 if isinstance(x, dict) else x for x in row] for row in table["data"]]
        tables.append((table["columns"], rows))
    return tables


def wandb_records(folder, kind):
    """Return the records of a kind in the .wandb file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = [Record.FromString(content) for content in _records(path.read_bytes())]
    return [getattr(record, kind) for record in records if record.WhichOneof("record_type") == kind]


def _records(data, block=32768, header=7):
    # LevelDB's log format: blocks of records that begin with a checksum, a length and which part of a whole they are
    at, whole = header, b""
    while at + header <= len(data):
        left = block - at % block
        if left < header:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):
            yield whole
            whole = b""
