// The largest density along rays, and the least coverage over views. Reference: mesh_extract/silhouette_numba.py; in
// double precision as there, so that what lies at a threshold falls on the same side.

// Bilinear value in the square of nodes from `cell` on, at v across rows and w along them.
__device__ inline double in_square(const float* __restrict__ cell, long long row, double v, double w) {
  return (cell[0] * (1.0 - w) + cell[1] * w) * (1.0 - v) + (cell[row] * (1.0 - w) + cell[row + 1] * w) * v;
}

// One thread a ray: the maximum of the trilinear field along it, in steps, until it meets `enough`.
extern "C" __global__ void largest_along_rays(
    const float* __restrict__ density,      // [X, Y, Z]
    int size_x, int size_y, int size_z,
    const double* __restrict__ origins,     // [C, 3] in node units
    const double* __restrict__ directions,  // [C, P, 3] in node units, of length one
    long long ray_count, int rays_each,     // C P, P
    double step, double enough,
    float* __restrict__ largest)            // [C, P] out
{
  const long long p = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= ray_count) return;
  const double* origin = origins + 3 * (p / rays_each);
  const double* direction = directions + 3 * p;
  const double ends[3] = {size_x - 1.0, size_y - 1.0, size_z - 1.0};
  double enter = 0.0, leave = 1e300;
  for (int axis = 0; axis < 3; ++axis) {
    const double slope = direction[axis];
    if (fabs(slope) < 1e-12) {
      if (origin[axis] < 0.0 || origin[axis] > ends[axis]) leave = -1.0;
      continue;
    }
    const double a = -origin[axis] / slope, b = (ends[axis] - origin[axis]) / slope;
    enter = fmax(enter, fmin(a, b));
    leave = fmin(leave, fmax(a, b));
  }
  const long long row = size_z, plane = static_cast<long long>(size_y) * size_z;
  double best = 0.0;
  for (double t = enter; t < leave && best < enough; t += step) {
    const double x = origin[0] + t * direction[0];
    const double y = origin[1] + t * direction[1];
    const double z = origin[2] + t * direction[2];
    // The last cell serves its far face as well.
    const int i = min(max(static_cast<int>(floor(x)), 0), size_x - 2);
    const int j = min(max(static_cast<int>(floor(y)), 0), size_y - 2);
    const int k = min(max(static_cast<int>(floor(z)), 0), size_z - 2);
    const double u = x - i, v = y - j, w = z - k;
    const float* cell = density + i * plane + j * row + k;
    const double near = in_square(cell, row, v, w), far = in_square(cell + plane, row, v, w);
    best = fmax(best, near * (1.0 - u) + far * u);
  }
  largest[p] = static_cast<float>(best);
}

// One thread a position: the smallest coverage that a view shows where it sees the position, bilinearly. A view in
// which it lies beside the picture's outermost pixel centres says nothing about it.
extern "C" __global__ void least_coverage(
    const double* __restrict__ positions,   // [P, 3], world units
    const double* __restrict__ viewmats,    // [C, 4, 4]
    const double* __restrict__ intrinsics,  // [C, 3, 3]
    const float* __restrict__ alphas,       // [C, H, W]
    long long position_count, int camera_count, int width, int height,
    float* __restrict__ least)              // [P] out: 1 where no view sees the position
{
  const long long p = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= position_count) return;
  const double px = positions[3 * p], py = positions[3 * p + 1], pz = positions[3 * p + 2];
  double smallest = 1.0;
  for (int c = 0; c < camera_count; ++c) {
    const double* view = viewmats + 16 * c;
    const double* k = intrinsics + 9 * c;
    const double z = view[8] * px + view[9] * py + view[10] * pz + view[11];
    if (!(z > 0.0)) continue;
    const double x = k[0] * (view[0] * px + view[1] * py + view[2] * pz + view[3]) / z + k[2] - 0.5;
    const double y = k[4] * (view[4] * px + view[5] * py + view[6] * pz + view[7]) / z + k[5] - 0.5;
    if (!(x >= 0.0 && y >= 0.0 && x < width - 1 && y < height - 1)) continue;
    const int i = static_cast<int>(x), j = static_cast<int>(y);
    const double u = x - i, v = y - j;
    const float* above = alphas + (static_cast<long long>(c) * height + j) * width + i;
    const float* below = above + width;
    const double upper = above[0] * (1.0 - u) + above[1] * u, lower = below[0] * (1.0 - u) + below[1] * u;
    smallest = fmin(smallest, upper * (1.0 - v) + lower * v);
  }
  least[p] = static_cast<float>(smallest);
}
