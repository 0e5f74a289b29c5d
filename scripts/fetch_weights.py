"""Fetch the weights of a public prior: the listed files of its pinned revision, checked against the hub and our list.

    python scripts/fetch_weights.py                              # what there is, with sizes and licences
    python scripts/fetch_weights.py stable-zero123               # into the hub's cache, where the app looks
    python scripts/fetch_weights.py imagedream --folder weights  # into weights/imagedream, for prior.weights=
    python scripts/fetch_weights.py zero123-xl --check           # sizes and hashes of what is there, too

An interrupted download goes on where it stopped. HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE work as for every
program that uses the hub.
"""

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from errors import UserError
from priors.weights_fetch import fetch
from priors.weights_registry import REPOSITORIES
from registry import lookup


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPOSITORIES))
    parser.add_argument("--folder", type=Path, help="put each into FOLDER/NAME rather than into the hub's cache")
    parser.add_argument("--check", action="store_true", help="compare files that are there already with the hub, too")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for client in ("httpx", "httpx2"):  # a line for every request
        logging.getLogger(client).setLevel(logging.WARNING)
    if not options.names:
        for repository in REPOSITORIES.values():
            revision = repository.revision[:8]
            print(f"{repository.name:<20} {repository.repo_id}@{revision}, {repository.shown_size}")
            print(f"{'':<20} {repository.licence}")
        return 0
    try:
        for name in options.names:
            repository = lookup(REPOSITORIES, name, "NAME")
            root = fetch(repository, None if options.folder is None else options.folder / name, options.check)
            print(f"{name}: {root} (licence: {repository.licence})")
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
