"""`python -m cuda_ext`: what our CUDA kernels find on this machine, and what is missing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime_env import prepare_environment


def main() -> int:
    """Print the report; 0 if kernels can run here, 1 if something is missing."""
    caches = prepare_environment()

    import cuda_ext.report

    lines, missing = cuda_ext.report.describe(caches)
    print("\n".join(lines))
    if missing is not None:
        print(f"CUDA kernels cannot run here: {missing}")
        return 1
    print("CUDA kernels can run here.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
