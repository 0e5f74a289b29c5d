"""The process that `uv.unwrap` starts: runs uvunwrap, which may crash or hang on a broken mesh, away from the app.

Reads from stdin a header of four int64 (vertices, faces, page size, padding), float32 positions and uint32 indices;
writes to stdout a header of four int64 (output vertices, width, height, lowest page), float32 uvs and uint32 indices.
Imports nothing heavy: starting it takes about 0.1 s. Failures end it with a traceback on stderr and a non-zero status.
"""

import array
import sys

import uvunwrap


def main() -> None:
    header = array.array("q", sys.stdin.buffer.read(32))
    vertex_count, face_count, page_size, padding = header
    positions = array.array("f", sys.stdin.buffer.read(12 * vertex_count))
    indices = array.array("I", sys.stdin.buffer.read(12 * face_count))
    mesh = uvunwrap.Mesh(positions, indices)
    atlas = uvunwrap.generate([mesh], page_size=page_size, padding=padding, packing=sys.argv[1])
    result = atlas.meshes[0]
    lowest_page = min(result.page, default=0) if atlas.page_count == 1 else -1
    output = array.array("q", [len(result.xref), atlas.width, atlas.height, lowest_page])
    for part in (output, result.uv, result.indices):
        sys.stdout.buffer.write(part.tobytes())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
