// exp(-q / 2) of every Gaussian at every point, one thread a pair: the first step of the article's ladder.
// Reference: coefficients_in_torch in mesh_extract/coefficients.py. Bound by launches: the loops call it once a block.

template <typename Real>
__device__ void coefficient(
    const Real* points, const Real* means, const Real* factors, long long count, int gaussians, Real* values) {
  const long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (pair >= count * gaussians) return;
  const long long point = pair / gaussians;
  const int gaussian = (int)(pair - point * gaussians);
  const Real* x = points + 3 * point;
  const Real* mean = means + 3ll * gaussian;
  const Real* l = factors + 6ll * gaussian;
  const Real dx = x[0] - mean[0], dy = x[1] - mean[1], dz = x[2] - mean[2];
  const Real a = l[0] * dx, b = l[1] * dx + l[2] * dy, c = l[3] * dx + l[4] * dy + l[5] * dz;
  values[pair] = exp(Real(-0.5) * (a * a + b * b + c * c));
}

extern "C" __global__ void gaussian_3d_coeff(
    const float* __restrict__ points,   // [count, 3]
    const float* __restrict__ means,    // [gaussians, 3]
    const float* __restrict__ factors,  // [gaussians, 6] triangular, by rows
    long long count, int gaussians,
    float* __restrict__ values) {  // [count, gaussians] out
  coefficient<float>(points, means, factors, count, gaussians, values);
}

extern "C" __global__ void gaussian_3d_coeff_double(
    const double* __restrict__ points, const double* __restrict__ means, const double* __restrict__ factors,
    long long count, int gaussians, double* __restrict__ values) {
  coefficient<double>(points, means, factors, count, gaussians, values);
}
