"""Writes ISO 639-3 languages and ISO 3166 countries, as pycountry ships them, into an SQLite file for Datasette,
and the primary keys of each table as a catalogue: `python docs/examples/iso_tables.py FOLDER`."""

import json
import sqlite3
import sys
from pathlib import Path

import pycountry

TABLES = {
    "languages": (pycountry.languages, "alpha_3", ("alpha_3", "name", "scope", "type", "alpha_2", "common_name")),
    "countries": (pycountry.countries, "alpha_3", ("alpha_3", "alpha_2", "numeric", "name", "official_name", "flag")),
}


def write(folder: Path) -> None:
    """iso.db, languages.json and countries.json in the folder."""
    with sqlite3.connect(folder / "iso.db") as database:
        for table, (source, key, columns) in TABLES.items():
            rows = [tuple(getattr(entry, column, None) for column in columns) for entry in source]
            database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({key}))")
            places = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - our own names
            keys = [row[0] for row in database.execute(f"SELECT {key} FROM {table} ORDER BY {key}")]  # noqa: S608
            (folder / f"{table}.json").write_text(json.dumps(keys))
    database.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
