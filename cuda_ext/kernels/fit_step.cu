// What a step of the fit does before and after the rasteriser: choose views, compare pictures, move the Gaussians.
// Reference: optimise.py and adam.py, which do the same with torch, step by step and watched from the host. Here nobody
// waits: a step whose loss is not finite changes nothing, a Gaussian that is not finite is made invisible, and counters
// in `state` tell the host about both when it asks. Sums have a fixed order: equal input, equal bits.
// From Python: BETA1, BETA2 and EPS of Adam, SHARE1 = 1 - BETA1, SHARE2 = 1 - BETA2, LOG_BETA1, LOG_BETA2, and
// places in `state`: NEXT (row of `picks` of the next step), ROW (of this one), FIRST_STEP (steps before row 0), FINITE
// (this step's loss), BAD_RUN (steps in a row without), LONGEST_BAD_RUN, DROPPED (Gaussians made invisible).

constexpr int kBlock = 256;
constexpr float kSmallestWeight = 1e-6f;

__device__ inline bool is_finite(float value) { return fabsf(value) <= 3.4028234e38f; }  // false for NaN

__device__ inline float negative_infinity() { return __int_as_float(0xff800000); }

// Sum over a block of kBlock threads, in a fixed order; thread 0 has it.
__device__ inline float block_sum(float value) {
  __shared__ float sums[kBlock];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int width = kBlock / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
    __syncthreads();
  }
  return sums[0];
}

// One block. The next row of views: their numbers and their cameras.
extern "C" __global__ void begin_step(
    int* __restrict__ state,
    const int* __restrict__ picks,          // [steps, views] numbers of views in the pool
    int views,
    const float* __restrict__ pool_viewmats,  // [V, 16]
    const float* __restrict__ pool_Ks,        // [V, 9]
    int* __restrict__ picked,                 // [views] out
    float* __restrict__ viewmats,             // [views, 16] out
    float* __restrict__ Ks) {                 // [views, 9] out
  __shared__ int row;
  if (threadIdx.x == 0) {
    row = state[NEXT];
    state[ROW] = row;
    state[NEXT] = row + 1;
  }
  __syncthreads();
  const int* chosen = picks + static_cast<long long>(row) * views;
  for (int i = threadIdx.x; i < views; i += blockDim.x) picked[i] = chosen[i];
  for (int i = threadIdx.x; i < views * 16; i += blockDim.x) {
    viewmats[i] = pool_viewmats[chosen[i / 16] * 16 + i % 16];
  }
  for (int i = threadIdx.x; i < views * 9; i += blockDim.x) Ks[i] = pool_Ks[chosen[i / 9] * 9 + i % 9];
}

// Contribution of one value to a view's loss, and its gradient: |e| or e^2, times weight.
__device__ inline float compare(float rendered, float target, float weight, bool squared, float* gradient) {
  const float error = rendered - target;
  if (squared) {
    *gradient = 2.0f * weight * error;
    return weight * error * error;
  }
  *gradient = error > 0.0f ? weight : (error < 0.0f ? -weight : 0.0f * error);  // NaN stays NaN
  return weight * fabsf(error);
}

// One thread a pixel; blocks (pixels / kBlock, views). The weighted mean error of colours and coverage, its gradient.
extern "C" __global__ void compare_pictures(
    const float* __restrict__ rgb,          // [views, P, 3] rendered
    const float* __restrict__ alpha,        // [views, P]
    const float* __restrict__ pool_rgb,     // [V, P, 3]
    const float* __restrict__ pool_alpha,   // [V, P], or null: coverage does not count
    const int* __restrict__ picked,         // [views]
    const float* __restrict__ rgb_weights,  // [views]
    const float* __restrict__ alpha_weights,
    int pixels, int squared_rgb, int squared_alpha,
    float* __restrict__ rgb_gradient,       // [views, P, 3] out
    float* __restrict__ alpha_gradient,     // [views, P] out, or null
    float* __restrict__ partial) {          // [views, gridDim.x] out
  const int view = blockIdx.y;
  const long long pixel = static_cast<long long>(blockIdx.x) * kBlock + threadIdx.x;
  float loss = 0.0f;
  if (pixel < pixels) {
    const long long here = static_cast<long long>(view) * pixels + pixel;
    const long long there = static_cast<long long>(picked[view]) * pixels + pixel;
    const float weight = rgb_weights[view] / (3.0f * pixels);
    for (int k = 0; k < 3; ++k) {
      const long long at = here * 3 + k;
      loss += compare(rgb[at], pool_rgb[there * 3 + k], weight, squared_rgb, &rgb_gradient[at]);
    }
    if (pool_alpha != nullptr) {
      const float alpha_weight = alpha_weights[view] / pixels;
      loss += compare(alpha[here], pool_alpha[there], alpha_weight, squared_alpha, &alpha_gradient[here]);
    }
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) partial[view * gridDim.x + blockIdx.x] = loss;
}

// One block. The loss of this step, and whether it is a number.
extern "C" __global__ void finish_loss(
    const float* __restrict__ partial, int count, float* __restrict__ losses, int* __restrict__ state) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += kBlock) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  losses[state[ROW]] = sum;
  const bool finite = is_finite(sum);
  state[FINITE] = finite;
  state[BAD_RUN] = finite ? 0 : state[BAD_RUN] + 1;
  state[LONGEST_BAD_RUN] = max(state[LONGEST_BAD_RUN], state[BAD_RUN]);
}

// One parameter of one Gaussian: `count` values with their gradients and moments.
struct Parameter {
  float* value;
  const float* gradient;
  float* first;
  float* second;
  int count;

  __device__ Parameter(float* v, const float* g, float* m1, float* m2, int n, long long index)
      : value(v + index * n), gradient(g + index * n), first(m1 + index * n), second(m2 + index * n), count(n) {}

  __device__ bool finite() const {
    bool all = true;
    for (int k = 0; k < count; ++k) all = all && is_finite(value[k]) && is_finite(gradient[k]);
    return all;
  }

  // Adam (arXiv:1412.6980), algorithm 1, with the corrections of this Gaussian's own age.
  __device__ void step(float rate, float correct1, float correct2, float extra = 0.0f) {
    if (rate == 0.0f) return;
    for (int k = 0; k < count; ++k) {
      const float g = gradient[k] + extra;
      const float m = first[k] + SHARE1 * (g - first[k]);
      const float v = second[k] * BETA2 + SHARE2 * g * g;
      first[k] = m;
      second[k] = v;
      value[k] -= rate * (m / correct1) / (sqrtf(v / correct2) + EPS);
    }
  }
};

// One thread a Gaussian: statistics for densification, Adam, and the bounds of the shapes.
extern "C" __global__ void move_gaussians(
    int count, int* __restrict__ state,
    float* means, const float* means_g, float* means_1, float* means_2,                      // [N, 3]
    float* quats, const float* quats_g, float* quats_1, float* quats_2,                      // [N, 4]
    float* log_scales, const float* log_scales_g, float* log_scales_1, float* log_scales_2,  // [N, 3]
    float* logits, const float* logits_g, float* logits_1, float* logits_2,                  // [N]
    float* sh0, const float* sh0_g, float* sh0_1, float* sh0_2,                              // [N, 1, 3]
    float* __restrict__ ages,                                                                // [N]
    const float* __restrict__ centre_gradient,  // [views, N, 2] of the loss, by the centres in pixels
    const int* __restrict__ radii,              // [views, N]; 0: not visible
    const float* __restrict__ rgb_weights,      // [views]
    int views, float half_width, float half_height,
    float* __restrict__ total, float* __restrict__ seen,  // [N] densify.GradientStatistics
    float means_rate, float log_means_ratio, float means_steps,  // falls to exp log_means_ratio of it in means_steps
    float quats_rate, float scales_rate, float logits_rate, float colours_rate,
    const float* __restrict__ entropy,  // [1] weight of the opacities' mean entropy
    float largest_log_scale, float log_ratio) {
  const long long i = static_cast<long long>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= count || !state[FINITE]) return;
  Parameter mean(means, means_g, means_1, means_2, 3, i), quat(quats, quats_g, quats_1, quats_2, 4, i);
  Parameter scale(log_scales, log_scales_g, log_scales_1, log_scales_2, 3, i);
  Parameter logit(logits, logits_g, logits_1, logits_2, 1, i), colour(sh0, sh0_g, sh0_1, sh0_2, 3, i);
  if (!(mean.finite() && quat.finite() && scale.finite() && logit.finite() && colour.finite())) {
    if (logits[i] != negative_infinity()) {  // no rasteriser draws it; the host drops it later
      logits[i] = negative_infinity();
      atomicAdd(&state[DROPPED], 1);
    }
    return;
  }
  float pull = 0.0f, visible = 0.0f;
  for (int c = 0; c < views; ++c) {
    const long long place = static_cast<long long>(c) * count + i;
    if (radii[place] <= 0) continue;
    // Undo the averaging over views; half the picture is one unit.
    const float undo = 1.0f / fmaxf(rgb_weights[c], kSmallestWeight);
    const float x = centre_gradient[place * 2] * undo * half_width;
    const float y = centre_gradient[place * 2 + 1] * undo * half_height;
    const float length = sqrtf(x * x + y * y);
    if (is_finite(length)) pull += length;
    visible += 1.0f;
  }
  total[i] += pull;
  seen[i] += visible;

  const float age = ages[i] + 1.0f;
  ages[i] = age;
  const float correct1 = -expm1f(age * LOG_BETA1), correct2 = -expm1f(age * LOG_BETA2);  // 1 - beta^age
  const float progress = fminf(1.0f, (state[FIRST_STEP] + state[ROW]) / means_steps);
  const float opacity = 1.0f / (1.0f + expf(-logits[i]));
  // d/dx of the entropy of p = sigmoid(x) is -x p (1 - p).
  const float towards_entropy = -entropy[0] / count * logits[i] * opacity * (1.0f - opacity);
  mean.step(means_rate * expf(log_means_ratio * progress), correct1, correct2);
  quat.step(quats_rate, correct1, correct2);
  scale.step(scales_rate, correct1, correct2);
  logit.step(logits_rate, correct1, correct2, towards_entropy);
  colour.step(colours_rate, correct1, correct2);

  float longest = negative_infinity();
  for (int k = 0; k < 3; ++k) {
    scale.value[k] = fminf(scale.value[k], largest_log_scale);
    longest = fmaxf(longest, scale.value[k]);
  }
  for (int k = 0; k < 3; ++k) scale.value[k] = fmaxf(scale.value[k], longest - log_ratio);
}
