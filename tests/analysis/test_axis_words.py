from __future__ import annotations

import pytest

from specsweep.analysis.axis_words import format_axis


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (None, "draft_length", "–"),
        (0, "isl", "natural"),
        (0, "temperature", "0"),
        (1.0, "temperature", "1"),
        (0.5, "temperature", "0.5"),
        ({"source": "path", "path": "/heads/eagle3_2k/"}, "drafter.model", "eagle3_2k"),
        (
            {"source": "hub", "repo": "nvidia/gpt-oss-120b-Eagle3-long-context", "revision": "main"},
            "drafter.model",
            "gpt-oss-120b-Eagle3-long-context",
        ),
        ({"source": "package_data", "file": "tiny_pair/eagle3"}, "drafter.model", "eagle3"),
        ({"rope_type": "yarn", "factor": 4}, "drafter.rope_scaling", "{'rope_type': 'yarn', 'factor': 4}"),
    ],
)
def test_values_read_as_people_say_them(value, name, words):
    assert format_axis(value, name) == words
