"""Writes the tiny parquet files that the reader is tested with (needs pyarrow and pillow):

    python tools/parquet_samples.py crates/data/src/parquet/samples

Image i is 4×4 pixels of the colour (20 i, 100, 200), as a PNG.
"""

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def png(i):
    out = io.BytesIO()
    Image.new("RGB", (4, 4), (20 * i, 100, 200)).save(out, "PNG")
    return out.getvalue()


def structures(numbers):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [None if i is None else {"bytes": png(i), "path": f"{i}.png"} for i in numbers]
    return pa.table({"label": list(range(len(rows))), "image": pa.array(rows, kind)})


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    plain = pa.table({"name": [f"{i}" for i in range(7)], "picture": pa.array([png(i) for i in range(7)], pa.binary())})
    # As the datasets library writes them; images that come again are numbers in a dictionary.
    hub = structures([0, 1, 2, 1, 0, 3, 4])
    pq.write_table(hub, folder / "hub.parquet", row_group_size=3)
    pq.write_table(
        plain, folder / "plain.parquet", compression="gzip", data_page_version="2.0", use_dictionary=False, data_page_size=100
    )
    pq.write_table(plain, folder / "raw.parquet", compression="none", use_dictionary=False)
    pq.write_table(structures([0, None, 2]), folder / "missing.parquet")
    pq.write_table(plain, folder / "zstd.parquet", compression="zstd")
    pq.write_table(plain.select(["name"]), folder / "words.parquet")


if __name__ == "__main__":
    main()
