# SPDX-License-Identifier: Apache-2.0
from genmonitor.evaluation.data.streamed_items import StreamedItems


def test_streamed_items_are_a_dataset_that_says_how_many():
    items = StreamedItems(["a", "b"])
    assert (len(items), items[1]) == (2, "b")
    assert "the data can only be streamed, so its first 2 images" in items.note("the data")
