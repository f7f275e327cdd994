import tempfile
from pathlib import Path

from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule

with tempfile.TemporaryDirectory() as made:
    path = Path(made) / "people.jsonl"
    path.write_text('{"id": "a", "age": 7}\n{"id": "b", "age": 41}\n')
    rule = DatasetRule(path=path, format="jsonl", id="id")
    (part,) = read_parts(rule, ["age"])
    print(header(rule), part.columns["age"].distinct)
    assert part.columns["age"].distinct == ("7", "41")
