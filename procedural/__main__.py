"""Draw a contact sheet: python -m procedural --sheet out.png --version v2 --n 64 [--family NAME]."""

import argparse
import sys
from pathlib import Path

from errors import UserError
from runtime_env import prepare_environment


def main() -> int:
    """Parse arguments, draw, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m procedural", description=__doc__)
    parser.add_argument("--sheet", type=Path, required=True, help="picture to write")
    parser.add_argument("--version", default="v1", help="v1, v2 or train")
    parser.add_argument("--n", type=int, default=64, help="number of objects")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--family", default=None, help="draw this family only")
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="pixels a view")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    prepare_environment()
    import numpy as np

    from procedural.families import FAMILY_NAMES, sample_objects
    from procedural.sheet import contact_sheet

    seeds = np.arange(args.first_seed, args.first_seed + args.n * (200 if args.family else 1), dtype=np.int64)
    objects = sample_objects(seeds, args.version)
    if args.family:
        if args.family not in FAMILY_NAMES:
            raise UserError(f"--family {args.family!r} is unknown; choose from {', '.join(FAMILY_NAMES)}")
        chosen = np.flatnonzero(objects.family == FAMILY_NAMES.index(args.family))[: args.n]
        objects, seeds = objects[chosen], seeds[chosen]
    contact_sheet(objects, seeds, args.sheet, args.columns, args.size, args.device)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
